// The curve of a training, and the map of memory.
import { PROGRAM } from "./program.js";

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["#8fb8de", "#f2c14e", "#7fc8a9", "#d9a5c7", "#e8998d", "#b9c0c8"];
const find = (selector) => document.querySelector(selector);
const drawn = (name, attributes, parent) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
};
const kilobytes = (bytes) => `${(bytes / 1024).toLocaleString("en", { maximumFractionDigits: 1 })} KB`;

export function curve(points) {
  const svg = find("#curve");
  svg.replaceChildren();
  if (points.length < 2) return;
  const last = points.at(-1).steps || 1;
  const top = Math.max(...points.map(({ loss }) => loss), 0.01);
  const path = (height) =>
    points.map((p, i) => `${i ? "L" : "M"}${(400 * p.steps) / last},${135 - 130 * height(p)}`).join("");
  drawn("path", { class: "loss", d: path(({ loss }) => loss / top) }, svg);
  drawn("path", { class: "right", d: path(({ right }) => right) }, svg);
}

export function memory(total) {
  const parts = PROGRAM.memory;
  find("#bytes").textContent =
    `${kilobytes(total)}, known before anything ran: ` +
    parts.map(([name, bytes]) => `${name} ${kilobytes(bytes)}`).join(", ") + ".";
  find("#parts").replaceChildren(
    ...parts.map(([name, bytes], i) => {
      const made = document.createElement("div");
      made.textContent = name;
      made.title = `${name}: ${kilobytes(bytes)}`;
      made.style.cssText = `flex: ${bytes} 0 0; background: ${COLOURS[i]}`;
      return made;
    }),
  );
  const { arena, calls, loss, blocks } = PROGRAM.plan;
  const svg = find("#arena");
  svg.setAttribute("viewBox", `0 0 ${calls} ${arena}`);
  for (const { name, first, last, offset, bytes } of blocks) {
    const fill = last > loss && first <= loss ? COLOURS[0] : first > loss ? COLOURS[4] : COLOURS[5];
    const box = { x: first, y: arena - offset - bytes, width: last - first + 1, height: bytes, fill };
    const made = drawn("rect", box, svg);
    const words = `${name}: ${kilobytes(bytes)}, calls ${first} to ${last}`;
    drawn("title", {}, made).textContent = words;
    made.addEventListener("pointerenter", () => (find("#block").textContent = words));
  }
  drawn("line", { x1: loss + 1, x2: loss + 1, y1: 0, y2: arena }, svg);
}
