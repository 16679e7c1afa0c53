/* Moving in a plot: wheel, drag, mini-map, keys. */

Plot.prototype.zoom = function (factor, x = 0.5, y = 0.5, both = true) {
  const { x0, x1, y0, y1 } = this.view;
  const width = clamp((x1 - x0) * factor, Math.min(3, this.steps), this.steps);
  const left = clamp(x0 + (x1 - x0 - width) * x, 0, this.steps - width);
  const height = both ? clamp((y1 - y0) * factor, this.top / 500, this.top) : y1 - y0;
  const low = clamp(y0 + (y1 - y0 - height) * y, 0, this.top - height);
  this.view = { x0: left, x1: left + width, y0: low, y1: low + height };
  this.draw();
};

Plot.prototype.pan = function (steps, bytes) {
  const { x0, x1, y0, y1 } = this.view;
  const right = clamp(steps, -x0, this.steps - x1), up = clamp(bytes, -y0, this.top - y1);
  this.view = { x0: x0 + right, x1: x1 + right, y0: y0 + up, y1: y1 + up };
  this.draw();
};

/* Show these steps, and all addresses. */
Plot.prototype.show = function (first, last) {
  const width = Math.min(Math.max(last - first, 3), this.steps);
  const left = clamp((first + last - width) / 2, 0, this.steps - width);
  this.view = { x0: left, x1: left + width, y0: 0, y1: this.top };
  this.draw();
};

Plot.prototype.go = function (step) {
  this.cursor = clamp(step, 0, this.steps - 1);
  const { x0, x1 } = this.view;
  if (this.cursor < x0) this.pan(this.cursor - x0, 0);
  else if (this.cursor + 1 > x1) this.pan(this.cursor + 1 - x1, 0);
  else this.draw();
  this.events.changed(this);
};

/* The next step in this direction that calls a kernel. */
Plot.prototype.stepBy = function (direction) {
  let step = this.cursor + direction;
  while (this.plan.steps[step] && !this.plan.steps[step].c) step += direction;
  if (step >= 0 && step < this.steps) this.go(step);
};

Plot.prototype.pin = function (block) {
  this.pinned = block;
  if (block !== null) {
    const { first, last } = this.blocks[block];
    this.cursor = clamp(this.cursor, first, last);
  }
  this.draw();
  this.events.changed(this);
};

/* The block above or below the pinned one, at the step of the cursor. */
Plot.prototype.next = function (direction) {
  const live = this.live(this.cursor);
  live.sort((a, b) => this.plan.blocks[a].offset - this.plan.blocks[b].offset);
  const at = live.indexOf(this.pinned);
  if (live.length) this.pin(live[at < 0 ? 0 : clamp(at + direction, 0, live.length - 1)]);
};

Plot.prototype.key = function (event) {
  const keys = {
    ArrowLeft: () => this.stepBy(-1),
    ArrowRight: () => this.stepBy(1),
    ArrowUp: () => this.next(1),
    ArrowDown: () => this.next(-1),
    Home: () => this.go(0),
    End: () => this.go(this.plan.steps.length - 1),
    Escape: () => this.pin(null),
    "+": () => this.zoom(0.6),
    "=": () => this.zoom(0.6),
    "-": () => this.zoom(1 / 0.6),
    0: () => this.fit(),
    p: () => this.go(this.plan.peak),
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
};

Plot.prototype.listen = function () {
  const svg = this.svg;
  svg.addEventListener("keydown", (event) => this.key(event));
  svg.addEventListener("focus", () => this.events.changed(this));
  svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  let held = null;
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { x: event.clientX, y: event.clientY, block: blockAt(event), moved: false };
  });
  svg.addEventListener("pointermove", (event) => {
    if (!held) {
      if (event.pointerType === "touch") return; // a tap says it
      this.events.hovered(this, blockAt(event), event);
      return;
    }
    const dx = event.clientX - held.x, dy = event.clientY - held.y;
    if (!held.moved && Math.hypot(dx, dy) < 5) return;
    if (!held.moved) svg.setPointerCapture(event.pointerId);
    Object.assign(held, { moved: true, x: event.clientX, y: event.clientY });
    const { x0, x1, y0, y1 } = this.view;
    this.pan((-dx * (x1 - x0)) / this.inner.width, (dy * (y1 - y0)) / this.inner.height);
  });
  svg.addEventListener("pointerup", (event) => {
    if (held && !held.moved) this.click(held.block, event);
    held = null;
  });
  svg.addEventListener("pointercancel", () => (held = null));
  svg.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") this.events.hovered(this, null, event);
  });
  this.brush();
};

function blockAt(event) {
  const block = event.target.dataset?.block;
  return block === undefined ? null : Number(block);
}

Plot.prototype.click = function (block, event) {
  const { x0, x1 } = this.view, box = this.svg.getBoundingClientRect();
  const share = (event.clientX - box.left - MARGIN.left) / this.inner.width;
  this.cursor = clamp(Math.floor(x0 + share * (x1 - x0)), 0, this.steps - 1);
  this.pin(block === this.pinned ? null : block);
  if (event.pointerType === "touch") this.events.hovered(this, this.pinned, event);
};

/* Without a key, the wheel zooms a plot that has been clicked; the page scrolls otherwise. */
Plot.prototype.wheel = function (event) {
  if (document.activeElement !== this.svg && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  const box = this.svg.getBoundingClientRect();
  const x = clamp((event.clientX - box.left - MARGIN.left) / this.inner.width, 0, 1);
  const y = clamp(1 - (event.clientY - box.top - MARGIN.top) / this.inner.height, 0, 1);
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    this.pan((event.deltaX * (this.view.x1 - this.view.x0)) / this.inner.width, 0);
  } else {
    this.zoom(Math.exp(clamp(event.deltaY, -200, 200) / 400), x, y, !event.shiftKey);
  }
};

/* Drag over the mini-map to choose steps; a click moves the view there. */
Plot.prototype.brush = function () {
  let from = null;
  const at = (event) => {
    const box = this.map.getBoundingClientRect();
    return clamp((event.clientX - box.left) / box.width, 0, 1) * this.steps;
  };
  this.map.addEventListener("pointerdown", (event) => {
    from = at(event);
    this.map.setPointerCapture(event.pointerId);
  });
  this.map.addEventListener("pointermove", (event) => {
    if (from !== null && Math.abs(at(event) - from) > 1) {
      this.show(Math.min(from, at(event)), Math.max(from, at(event)));
    }
  });
  this.map.addEventListener("pointerup", (event) => {
    const to = at(event), half = (this.view.x1 - this.view.x0) / 2;
    if (from !== null && Math.abs(to - from) <= 1) this.pan(to - this.view.x0 - half, 0);
    from = null;
  });
};
