/* The page: plots beside each other that share a scale, the search, the legend, the theme. */

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const shared = { plans: data.plans, ram: false, together: true, words: "", off: new Set() };
  shared.dims = (block) => shared.off.has(block.kind) || !matches(block, shared.words);
  const inspector = new Inspector(document.getElementById("inspector"), data.kinds, data.columns);
  const said = document.getElementById("said");
  let active = null;
  const events = {
    changed(plot) {
      active = plot;
      inspector.show(plot);
      said.textContent = spoken(plot);
    },
    hovered: (plot, block, event) => tip(plot, block, event, data.kinds),
  };
  // Names of layers are searched, too.
  for (const plan of data.plans) {
    for (const block of [...plan.blocks, ...plan.resident]) {
      const layer = block.layer === null ? "" : plan.layers[block.layer][0];
      block.words = [block.name, ...(block.others ?? []), layer].join(" ").toLowerCase();
    }
  }
  const plots = data.plans.map(
    (plan, i) => new Plot(document.getElementById(`plot-${i}`), plan, shared, events),
  );
  const redraw = () => plots.forEach((plot) => plot.draw());
  controls(plots, shared, () => active ?? plots[0], redraw);
  events.changed(plots[0]);
  const box = document.getElementById("tip");
  addEventListener("scroll", () => (box.hidden = true), { passive: true });
  theme();
  layerRows(redraw);
  energy();
}

function matches(block, words) {
  return !words || block.words.includes(words);
}

function spoken(plot) {
  if (plot.pinned === null) return `Step ${plot.cursor + 1} of ${plot.plan.steps.length}`;
  const block = plot.blocks[plot.pinned];
  return `${block.name}, ${bytes(block.bytes)}${block.why ? `, ${block.why}` : ""}`;
}

function tip(plot, number, event, kinds) {
  const box = document.getElementById("tip");
  box.hidden = number === null;
  if (box.hidden) return;
  const block = plot.blocks[number], layer = block.layer;
  const calls = `${block.calls} call${block.calls === 1 ? "" : "s"}`;
  const life = block.always ? "all the time" : `step ${block.first + 1} to ${block.last + 1}, ${calls}`;
  box.replaceChildren(
    make("b", {}, swatch(block.kind), block.name),
    facts([
      ["", kinds[block.kind][1]],
      ["layer", layer === null ? null : plot.plan.layers[layer][0]],
      ["size", bytes(block.bytes)],
      ["lives", life],
      ["why", block.why ?? null],
    ]),
  );
  const { innerWidth: width, innerHeight: height } = window;
  const left = event.clientX + 14 + box.offsetWidth > width;
  box.style.left = `${left ? Math.max(4, event.clientX - 14 - box.offsetWidth) : event.clientX + 14}px`;
  box.style.top = `${clamp(event.clientY + 14, 4, Math.max(4, height - box.offsetHeight - 4))}px`;
}

function controls(plots, shared, active, redraw) {
  const on = (id, event, does) => document.getElementById(id)?.addEventListener(event, does);
  on("zoom-in", "click", () => active().zoom(0.6));
  on("zoom-out", "click", () => active().zoom(1 / 0.6));
  on("fit", "click", () => plots.forEach((plot) => plot.fit()));
  on("peak", "click", () => plots.forEach((plot) => {
    plot.pinned = null;
    plot.go(plot.plan.peak);
  }));
  on("ram", "change", (event) => {
    shared.ram = event.target.checked;
    document.querySelectorAll("[data-resident]").forEach((entry) => (entry.hidden = !shared.ram));
    plots.forEach((plot) => plot.fit());
  });
  on("together", "change", (event) => {
    shared.together = event.target.checked;
    plots.forEach((plot) => plot.fit());
  });
  const search = document.getElementById("search"), found = document.getElementById("found");
  const look = () => {
    shared.words = search.value.trim().toLowerCase();
    redraw();
    const count = plots.reduce((n, plot) => n + plot.plan.blocks.filter((b) => !shared.dims(b)).length, 0);
    found.textContent = shared.words ? `${count} block${count === 1 ? "" : "s"}` : "";
  };
  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") plots.forEach((plot) => reach(plot, shared));
  });
  for (const button of document.querySelectorAll("[data-kind]")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      for (const kind of button.dataset.kind.split(" ")) {
        if (shown) shared.off.add(kind);
        else shared.off.delete(kind);
      }
      redraw();
    });
  }
}

/* Show the steps in which blocks that were searched for live. */
function reach(plot, shared) {
  const found = plot.plan.blocks.filter((block) => !shared.dims(block));
  if (!found.length) return;
  const first = Math.min(...found.map((block) => block.first));
  plot.show(first - 1, Math.max(...found.map((block) => block.last)) + 2);
}

/* A button in the table of layers shows the blocks of that layer. */
function layerRows(redraw) {
  const search = document.getElementById("search");
  for (const button of document.querySelectorAll("[data-layer]")) {
    button.addEventListener("click", () => {
      search.value = button.dataset.layer;
      search.dispatchEvent(new Event("input"));
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      document.getElementById("memory").scrollIntoView({ behavior: calm ? "auto" : "smooth" });
      redraw();
    });
  }
}

function theme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  button.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme ?? (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });
}

start();
