// The network, its samples and the training loop, off the page's thread.
import { ENTRIES, load } from "./net/index.js";

const CHUNK = 80; // milliseconds of steps between two messages to the page
const BATCH = ENTRIES.train_step.arrays[1].elements;
const fast = "train_step_kept" in ENTRIES; // steps that begin behind the frozen layers
const network = await load();
const first = await load(); // never trained: what the network said before
const samples = [];
let rate = 0;
let running = false;
let timer = 0; // of the next chunk
let steps = 0;
let recent = [];
let judgedAt = { steps: 0, time: 0, cost: 0 };

const largest = (scores) => scores.indexOf(Math.max(...scores));

function add({ x, label, held }) {
  const kept = fast && !held ? network.run("prefix", [x]) : null;
  const [before, now] = [first, network].map((one) => largest(one.predict(x)));
  samples.push({ x, kept, label, held, before, now });
}

function step() {
  const learnt = samples.filter((sample) => !sample.held);
  const { x, kept, label } = learnt[Math.floor(Math.random() * learnt.length)];
  const y = new Int32Array(BATCH).fill(label);
  const name = kept ? "train_step_kept" : "train_step";
  const loss = network.run(name, [...(kept ?? [x]), y], [rate])[0][0];
  steps += 1;
  recent = [...recent.slice(-19), loss];
}

// Looks at every sample again: while training, for at most a fifth of the time.
function look() {
  const start = performance.now();
  const { steps: then, time, cost } = judgedAt;
  if (then === steps || (running && start - time < 5 * cost)) return;
  for (const sample of samples) sample.now = largest(network.predict(sample.x));
  const end = performance.now();
  judgedAt = { steps, time: end, cost: end - start };
}

// The fractions that are right now, and were before: of learnt pictures and of the others.
function judged() {
  look();
  return [false, true].map((which) => {
    const some = samples.filter(({ held }) => held === which);
    if (!some.length) return null;
    const part = (when) => some.filter((sample) => sample[when] === sample.label).length / some.length;
    return { right: part("now"), before: part("before") };
  });
}

function report(perSecond = 0) {
  const loss = recent.reduce((sum, value) => sum + value, 0) / recent.length;
  postMessage({ kind: "state", running, steps, loss, perSecond, judged: judged() });
}

function loop() {
  if (!running) return;
  const start = performance.now();
  const before = steps;
  try {
    while (performance.now() - start < CHUNK) step();
  } catch (error) {
    running = false;
    postMessage({ kind: "error", why: error.message });
  }
  const spent = performance.now() - start;
  report((1000 * (steps - before)) / spent);
  timer = setTimeout(loop);
}

const COMMANDS = {
  add(message) {
    add(message);
    report();
  },
  train(message) {
    clearTimeout(timer); // which may be left of a loop that was stopped just now
    running = message.on;
    rate = message.rate;
    if (running) loop();
    else report();
  },
  guess({ x }) {
    postMessage({ kind: "guess", before: first.predict(x), now: network.predict(x) });
  },
  forget() {
    network.reset();
    [steps, recent] = [0, []];
    judgedAt.steps = -1;
    report();
  },
  save() {
    postMessage({ kind: "saved", bytes: network.save() });
  },
  load({ bytes }) {
    network.load(bytes);
    judgedAt.steps = -1;
    report();
  },
};

onmessage = ({ data }) => {
  try {
    COMMANDS[data.kind](data);
  } catch (error) {
    postMessage({ kind: "error", why: error.message });
  }
};
postMessage({ kind: "ready", memory: network.memoryBytes });
