// Wires the page to the worker: classes and their pictures, buttons, and what is shown.
import { curve, memory } from "./charts.js";
import { PROGRAM } from "./program.js";
import { camera, current, fromFiles, numbers, startDrawing, taken, wipe } from "./sources.js";

const find = (selector) => document.querySelector(selector);
const worker = new Worker("worker.js", { type: "module" });
const classes = [];
let running = false;
let points = [];

const say = (text) => (find("#message").textContent = text);
const source = () => find("input[name=source]:checked").value;
const percent = (part) => (part === undefined ? "–" : `${Math.round(100 * part)} %`);

// What goes wrong in an action is said, not lost.
const guarded = (action) => (...args) =>
  Promise.resolve().then(() => action(...args)).catch((error) => say(error.message));

function makeClass(index) {
  const box = document.createElement("div");
  box.className = "class";
  box.innerHTML = `<div class="row"><input type="text" maxlength="30" aria-label="Name of class ${index + 1}">
    <button type="button">Add</button></div><div class="shots"></div>`;
  const [name, button, shots] = box.querySelectorAll("input, button, .shots");
  name.value = `class ${index + 1}`;
  button.setAttribute("aria-label", `Add pictures to class ${index + 1}`);
  const made = { name, shots, count: 0 };
  const add = (pictures) => pictures.forEach((picture) => addPicture(made, index, picture));
  const chosen = guarded(async (files) => {
    add(await fromFiles(files));
    guess();
  });
  button.addEventListener("click", guarded(async () => {
    if (source() !== "files") return add(await taken(source()));
    const picker = find("#files input");
    picker.onchange = () => chosen([...picker.files]).then(() => (picker.value = ""));
    picker.click();
  }));
  box.addEventListener("dragover", (event) => {
    event.preventDefault();
    box.classList.add("over");
  });
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    box.classList.remove("over");
    chosen([...event.dataTransfer.files]);
  });
  name.addEventListener("input", guess);
  classes.push(made);
  find("#classes").append(box);
}

function addPicture(made, label, picture) {
  made.count += 1;
  const held = made.count % 4 === 0;
  picture.title = held ? "tests, is not learnt" : "is learnt";
  picture.classList.toggle("held", held);
  made.shots.append(picture);
  worker.postMessage({ kind: "add", x: numbers(picture), label, held });
  const enough = classes.filter(({ count }) => count > 0).length > 1;
  find("#start").disabled = !enough;
  say(enough ? "Ready to train." : "Now pictures of another class.");
}

function guess() {
  const picture = current(source());
  if (picture) worker.postMessage({ kind: "guess", x: numbers(picture) });
}

function showGuess({ before, now }) {
  const share = (scores) => {
    const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const sum = powers.reduce((all, power) => all + power, 0);
    return Array.from(powers, (power) => power / sum);
  };
  const [old, fresh] = [share(before), share(now)];
  const cell = (row, part) => {
    const made = row.insertCell();
    const meter = document.createElement("meter");
    meter.value = part;
    made.append(meter, ` ${percent(part)}`);
  };
  find("#guess").replaceChildren(...classes.map(({ name }, i) => {
    const row = document.createElement("tr");
    row.insertCell().textContent = name.value;
    cell(row, old[i]);
    cell(row, fresh[i]);
    return row;
  }));
}

function showState({ steps, loss, perSecond, judged: [learnt, held] }) {
  find("#steps").textContent = steps.toLocaleString("en");
  find("#loss").textContent = Number.isFinite(loss) ? loss.toFixed(3) : "–";
  if (perSecond) find("#speed").textContent = Math.round(perSecond);
  find("#before").textContent = percent(learnt?.before);
  find("#after").textContent = percent(learnt?.right);
  find("#before-held").textContent = percent(held?.before);
  find("#after-held").textContent = percent(held?.right);
  if (!steps) points = [];
  else if (learnt) points.push({ steps, loss, right: learnt.right });
  if (points.length > 400) points = points.filter((_, i) => i % 2);
  curve(points);
}

function train(on) {
  running = on;
  worker.postMessage({ kind: "train", on, rate: PROGRAM.rate });
  find("#start").textContent = on ? "Stop" : "Train";
  say(on ? "Training." : "Stopped.");
}

function download(bytes) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes]));
  link.download = "checkpoint.bin";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const ANSWERS = {
  ready({ memory: total }) {
    memory(total);
    find("#network").textContent = PROGRAM.words;
    for (const name of ["forget", "export", "import"]) find(`#${name}`).disabled = false;
    say("Add pictures to two classes.");
  },
  state: showState,
  guess: showGuess,
  saved: ({ bytes }) => download(bytes),
  error({ why }) {
    if (running) train(false);
    say(why);
  },
};
worker.onmessage = ({ data }) => ANSWERS[data.kind](data);
worker.onerror = (event) => say(`The network did not load: ${event.message ?? "see the console"}`);

for (let i = 0; i < PROGRAM.classes; i++) makeClass(i);
startDrawing(guess);
find("#wipe").addEventListener("click", wipe);
find("#start").addEventListener("click", () => train(!running));
find("#forget").addEventListener("click", () => worker.postMessage({ kind: "forget" }));
find("#export").addEventListener("click", () => worker.postMessage({ kind: "save" }));
find("#import").addEventListener("click", () => find("#weights").click());
find("#weights").addEventListener("change", guarded(async ({ target }) => {
  const bytes = new Uint8Array(await target.files[0].arrayBuffer());
  worker.postMessage({ kind: "load", bytes });
  target.value = "";
}));
find("#sources").addEventListener("change", guarded(async () => {
  for (const name of ["draw", "camera", "files"]) find(`#${name}`).hidden = name !== source();
  await camera(source() === "camera");
}));
setInterval(() => (source() === "camera" || running) && guess(), 400);
