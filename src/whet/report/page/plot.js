/* One arena: a rectangle for every block, steps from left to right, addresses from below. */

const MARGIN = { left: 58, right: 10, top: 30, bottom: 26 };
const LETTER = 6.1; // pixels of a letter of a label, on average
const PHASE_WORDS = {
  forward: "forward",
  backward: "backward",
  update: "update",
  fused: "gradient and update in one call",
};

function shape(parent, tag, attributes = {}, text) {
  const made = document.createElementNS(parent.namespaceURI, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/* Round numbers of bytes from `low` to `high`, at most `most` of them. */
function byteTicks(low, high, most) {
  let step = 1;
  while ((high - low) / step > most) step *= 2;
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
  return ticks;
}

function stepTicks(low, high, most) {
  const rough = Math.max(1, (high - low) / most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough));
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at < high; at += step) ticks.push(at);
  return ticks;
}

class Plot {
  constructor(root, plan, shared, events) {
    Object.assign(this, { root, plan, shared, events });
    this.svg = root.querySelector("svg.plan");
    this.map = root.querySelector("svg.map");
    this.steps = plan.steps.length + 1;
    this.cursor = clamp(plan.peak, 0, this.steps - 1);
    this.pinned = null;
    this.blocks = this.stack();
    this.groups = {};
    const clip = shape(shape(this.svg, "defs"), "clipPath", { id: `clip-${root.id}` });
    this.clip = shape(clip, "rect");
    for (const name of ["bands", "grid", "blocks", "labels", "lines", "over"]) {
      this.groups[name] = shape(this.svg, "g", { class: name });
      if (!["bands", "grid", "lines"].includes(name)) {
        this.groups[name].setAttribute("clip-path", `url(#clip-${root.id})`);
      }
    }
    this.rects = this.blocks.map((block, i) =>
      shape(this.groups.blocks, "rect", { class: `block ${block.kind}`, "data-block": i }),
    );
    this.drawMap();
    this.fit();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  /* The arena's blocks, then what lies in RAM all the time, on top of the arena. */
  stack() {
    let offset = this.plan.arena;
    const always = this.plan.resident.map((block) => {
      const placed = { ...block, offset, first: 0, last: this.steps - 1, always: true, reads: [] };
      offset += block.bytes;
      return placed;
    });
    return [...this.plan.blocks, ...always];
  }

  /* The highest address to be seen, of the arena or of all RAM; two plans may share it. */
  get top() {
    const plans = this.shared.together ? this.shared.plans : [this.plan];
    const tops = plans.map((plan) => {
      const size = this.shared.ram ? plan.ram : plan.arena;
      const line = this.shared.ram ? plan.budget : plan.room;
      return line !== null && line > 0 && line < 3 * size ? Math.max(size, line) : size;
    });
    return 1.05 * Math.max(...tops, 1);
  }

  fit() {
    this.view = { x0: 0, x1: this.steps, y0: 0, y1: this.top };
    this.draw();
  }

  x(step) {
    const { x0, x1 } = this.view;
    return MARGIN.left + ((step - x0) / (x1 - x0)) * this.inner.width;
  }

  y(byte) {
    const { y0, y1 } = this.view;
    return MARGIN.top + (1 - (byte - y0) / (y1 - y0)) * this.inner.height;
  }

  draw() {
    const width = this.svg.clientWidth, height = this.svg.clientHeight;
    if (!width || !height) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.inner = {
      width: width - MARGIN.left - MARGIN.right,
      height: height - MARGIN.top - MARGIN.bottom,
    };
    const box = { x: MARGIN.left, y: MARGIN.top, ...this.inner };
    for (const [key, value] of Object.entries(box)) this.clip.setAttribute(key, value);
    for (const group of ["bands", "grid", "labels", "lines", "over"]) {
      this.groups[group].replaceChildren();
    }
    this.drawGrid(box);
    this.drawBands(box);
    this.drawBlocks();
    this.drawLines(box);
    this.drawOver(box);
    this.placeWindow();
  }

  drawGrid(box) {
    const grid = this.groups.grid, { x0, x1, y0, y1 } = this.view;
    shape(grid, "rect", { class: "paper", ...box });
    for (const byte of byteTicks(y0, y1, box.height / 44)) {
      const y = this.y(byte);
      shape(grid, "line", { x1: box.x, x2: box.x + box.width, y1: y, y2: y });
      shape(grid, "text", { x: box.x - 7, y: y + 4, class: "end" }, bytesShort(byte));
    }
    for (const step of stepTicks(x0, x1, box.width / 70)) {
      const x = this.x(step + 0.5);
      if (x < box.x + box.width) {
        shape(grid, "text", { x, y: box.y + box.height + 17, class: "middle" }, step + 1);
      }
    }
  }

  /* Runs of steps of one phase above the plan, and the names of the parts of the step. */
  drawBands(box) {
    const bands = this.groups.bands, { steps } = this.plan;
    const place = (first, last) => ({
      left: clamp(this.x(first), box.x, box.x + box.width),
      right: clamp(this.x(last), box.x, box.x + box.width),
    });
    for (let start = 0, i = 1; i <= steps.length; i++) {
      if (i < steps.length && steps[i].phase === steps[start].phase) continue;
      const { left, right } = place(start, i), phase = steps[start].phase;
      start = i;
      if (right <= left) continue;
      const width = Math.max(right - left, 0.5);
      const run = shape(bands, "rect", { x: left, y: box.y - 9, width, height: 6, class: phase });
      shape(run, "title", {}, PHASE_WORDS[phase]);
    }
    for (const [words, first, last] of this.parts()) {
      const { left, right } = place(first, last);
      if (right - left < LETTER * words.length) continue;
      shape(bands, "text", { x: (left + right) / 2, y: box.y - 15, class: "middle" }, words);
    }
  }

  /* Forward, backward and update; the last two are one where updates happen in between. */
  parts() {
    const { steps, loss } = this.plan, behind = steps.slice(loss + 1);
    if (!behind.length) return [["forward", 0, steps.length]];
    const update = loss + 1 + behind.findIndex((step) => step.phase === "update");
    const apart = update > loss && steps.slice(update).every((step) => step.phase === "update");
    const forward = ["forward", 0, loss + 1];
    if (!apart) return [forward, ["backward and update", loss + 1, steps.length]];
    return [forward, ["backward", loss + 1, update], ["update", update, steps.length]];
  }

  drawBlocks() {
    const dims = this.shared.dims;
    this.blocks.forEach((block, i) => {
      const rect = this.rects[i];
      const hidden = block.always && !this.shared.ram;
      rect.style.display = hidden ? "none" : "";
      if (hidden) return;
      const x = this.x(block.first), right = this.x(block.last + 1);
      const y = this.y(block.offset + block.bytes), bottom = this.y(block.offset);
      const width = Math.max(right - x, 1), height = Math.max(bottom - y, 1);
      const gap = Math.min(width, height) > 3 ? 1 : 0;
      rect.setAttribute("x", x);
      rect.setAttribute("y", y);
      rect.setAttribute("width", width - gap);
      rect.setAttribute("height", height - gap);
      rect.classList.toggle("dim", dims(block));
      rect.classList.toggle("pinned", i === this.pinned);
      if (!dims(block)) this.label(block, x, y, width, height);
    });
  }

  label(block, x, y, width, height) {
    const left = Math.max(x, MARGIN.left);
    const right = Math.min(x + width, MARGIN.left + this.inner.width);
    const high = Math.max(y, MARGIN.top);
    const low = Math.min(y + height, MARGIN.top + this.inner.height);
    const room = Math.floor((right - left - 8) / LETTER), { name } = block;
    if (low - high < 13 || room < Math.min(name.length, 9)) return;
    const words = name.length > room ? `…${name.slice(1 - room)}` : name; // the end tells more
    const at = { x: (left + right) / 2, y: (low + high) / 2 + 4 };
    shape(this.groups.labels, "text", { ...at, class: `middle on-${block.kind}` }, words);
  }

  drawLines(box) {
    const { plan } = this, size = this.shared.ram ? plan.ram : plan.arena;
    const limit = this.shared.ram ? plan.budget : plan.room;
    const line = (byte, words, kind) => {
      const y = this.y(byte), lines = this.groups.lines;
      if (y < box.y - 1 || y > box.y + box.height) return;
      shape(lines, "line", { x1: box.x, x2: box.x + box.width, y1: y, y2: y, class: kind });
      const left = kind === "budget";
      const at = { x: left ? box.x + 5 : box.x + box.width - 5, y: y - 5 };
      shape(lines, "text", { ...at, class: left ? kind : `end ${kind}` }, words);
    };
    if (limit !== null) {
      line(limit, `budget: ${bytes(limit)}${this.shared.ram ? "" : " for the arena"}`, "budget");
    }
    const bound = plan.bound === plan.arena && !this.shared.ram ? ", the lower bound" : "";
    line(size, `${bytes(size)}${bound}`, "size");
    if (this.shared.ram) line(plan.arena, "arena", "bound");
    else if (!bound) line(plan.bound, "lower bound", "bound");
  }

  drawOver(box) {
    const over = this.groups.over, x = this.x(this.cursor), width = this.x(this.cursor + 1) - x;
    shape(over, "rect", {
      x, y: box.y, width: Math.max(width, 1), height: box.height, class: "cursor",
    });
    if (this.pinned === null) return;
    const rect = this.rects[this.pinned], at = {};
    for (const key of ["x", "y", "width", "height"]) at[key] = rect.getAttribute(key);
    shape(over, "rect", { ...at, class: "outline" });
    for (const step of this.blocks[this.pinned].reads) {
      const middle = this.x(step + 0.5), y = clamp(Number(at.y), box.y, box.y + box.height);
      shape(over, "path", { d: `M${middle - 4} ${y - 6}h8l-4 6z`, class: "read" });
    }
  }

  /* The mini-map: bytes that are in use at each step, and the part of it in view. */
  drawMap() {
    const uses = this.uses(), most = Math.max(...uses, 1);
    const points = uses.flatMap((bytes, i) => {
      const y = 1 - bytes / most;
      return [`${i / uses.length} ${y}`, `${(i + 1) / uses.length} ${y}`];
    });
    this.map.setAttribute("viewBox", "0 0 1 1");
    shape(this.map, "path", { d: `M0 1L${points.join("L")}L1 1Z`, class: "uses" });
    this.window = shape(this.map, "rect", { y: 0, height: 1, class: "window" });
  }

  uses() {
    const uses = new Array(this.steps).fill(0);
    for (const block of this.plan.blocks) {
      for (let i = block.first; i <= Math.min(block.last, this.steps - 1); i++) {
        uses[i] += block.bytes;
      }
    }
    return uses;
  }

  placeWindow() {
    this.window.setAttribute("x", this.view.x0 / this.steps);
    this.window.setAttribute("width", (this.view.x1 - this.view.x0) / this.steps);
  }

  /* Blocks of the arena at a step, the largest first. */
  live(step) {
    const found = [];
    this.plan.blocks.forEach((block, i) => {
      if (block.first <= step && step <= block.last) found.push(i);
    });
    return found.sort((a, b) => this.plan.blocks[b].bytes - this.plan.blocks[a].bytes);
  }
}
