/* What is said of a step and of a block, beside the plots. */

const UNITS = [[2 ** 20, "MiB"], [2 ** 10, "KiB"]];

function bytesShort(count) {
  const [size, unit] = UNITS.find(([size]) => count >= size) ?? [1, "B"];
  return `${(count / size).toLocaleString("en", { maximumFractionDigits: 1 })} ${unit}`;
}

function bytes(count) {
  const exact = `${count.toLocaleString("en")} B`;
  return count < 10240 ? exact : `${(count / 1024).toLocaleString("en", { maximumFractionDigits: 1 })} KiB`;
}

/* An element with text or children; everything from the model becomes text. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function swatch(kind) {
  return make("i", { class: `swatch ${kind}`, "aria-hidden": "true" });
}

function facts(rows) {
  const list = make("dl", { class: "facts" });
  for (const [name, value] of rows) {
    if (value !== null) list.append(make("dt", {}, name), make("dd", {}, value));
  }
  return list;
}

class Inspector {
  constructor(root, kinds, columns) {
    Object.assign(this, { root, kinds, columns });
  }

  show(plot) {
    this.plot = plot;
    const block = plot.pinned === null ? null : plot.blocks[plot.pinned];
    const parts = block === null ? this.step(plot) : this.block(plot, block);
    this.root.replaceChildren(...parts);
  }

  heading(plot, words) {
    const several = plot.shared.plans.length > 1;
    const label = several ? make("p", { class: "label" }, plot.plan.label) : null;
    return make("header", {}, ...[label, make("h3", {}, words)].filter((part) => part !== null));
  }

  step(plot) {
    const { plan, cursor } = plot, step = plan.steps[cursor], live = plot.live(cursor);
    const sum = live.reduce((total, i) => total + plan.blocks[i].bytes, 0);
    const where = cursor === plan.peak ? ", the peak" : "";
    const words = step ? `Step ${cursor + 1} of ${plan.steps.length}${where}` : "After the last step";
    const most = Math.max(...live.map((i) => plan.blocks[i].bytes), 1);
    const rows = live.map((i) => {
      const block = plan.blocks[i], bar = make("span", { class: `bar ${block.kind}` });
      bar.style.width = `${Math.max(1, (100 * block.bytes) / most)}%`;
      const row = make(
        "button",
        { type: "button", onclick: () => plot.pin(i) },
        make("span", { class: "name" }, block.name),
        make("span", { class: "number" }, bytes(block.bytes)),
        bar,
      );
      return make("li", {}, row);
    });
    const list = make("ol", { class: "live" }, ...rows);
    const total = `${bytes(sum)} in ${live.length} block${live.length === 1 ? "" : "s"}`;
    const peak = () => plot.go(plan.peak);
    const back = where ? null : make("button", { type: "button", onclick: peak }, "Go to the peak");
    return [
      this.heading(plot, words),
      step ? this.source(plot, cursor) : null,
      make("h4", {}, `In the arena: ${total}`),
      list,
      back,
    ].filter((part) => part !== null);
  }

  block(plot, block) {
    const { plan } = plot, [, words] = this.kinds[block.kind];
    const close = () => {
      plot.pin(null);
      plot.svg.focus();
    };
    const title = this.heading(plot, "");
    const name = make("span", { class: "name" }, block.name);
    title.querySelector("h3").append(swatch(block.kind), name);
    const button = { type: "button", class: "close", onclick: close, "aria-label": "Unpin" };
    title.append(make("button", button, "×"));
    const layer = block.layer === null ? null : plan.layers[block.layer];
    const life = block.always
      ? "all the time"
      : `step ${block.first + 1} to ${Math.min(block.last + 1, plan.steps.length)}, ${block.calls} call${block.calls === 1 ? "" : "s"}`;
    const where = block.always ? null : `${block.offset.toLocaleString("en")} in the arena`;
    const parts = [
      title,
      facts([
        ["kind", words],
        ["size", `${block.bytes.toLocaleString("en")} B${block.type ? `, ${block.type}` : ""}`],
        ["address", where],
        ["lives", life],
        ["why", block.why ?? null],
        ["holds then", block.others?.length ? block.others.join(", ") : null],
      ]),
    ];
    if (!block.always) {
      parts.push(make("h4", {}, `Written by step ${block.first + 1}`), this.source(plot, block.first));
      const last = block.reads.at(-1);
      if (last !== undefined && last !== block.first) {
        parts.push(make("h4", {}, `Read last by step ${last + 1}`), this.source(plot, last));
      }
    }
    if (layer) parts.push(make("h4", {}, "Its layer"), this.layer(layer));
    return parts;
  }

  /* The line of the graph, and the line of model.c that it became. */
  source(plot, number) {
    const step = plot.plan.steps[number];
    const c = step.c || "/* a view of the same bytes: no call */";
    return make(
      "div",
      { class: "source" },
      make("p", { class: "phase" }, make("i", { class: `swatch ${step.phase}` }), PHASE_WORDS[step.phase]),
      make("pre", { tabindex: "0", "aria-label": "line of the graph" }, step.ir),
      make("pre", { class: "c", tabindex: "0", "aria-label": "line of model.c" }, c),
    );
  }

  layer(row) {
    const cells = row.slice(1).map((value, i) => [this.columns[i + 1], value || null]);
    return facts([["layer", row[0]], ...cells]);
  }
}
