// @name@: a network that trains where it runs, in a page, in a Worker or in Node. Arrays are typed
// arrays in the order of axes that index.d.ts gives; the network copies them.

export const ENTRIES = @entries@;
export const LEARNING_RATE = @rate@;

const STATUSES = @statuses@;

export class NetworkError extends Error {
  constructor(code, why) {
    super(`${code}: ${why}`);
    this.name = "NetworkError";
    this.code = code;
  }
}

// A network of its own: `source` is where the module is, or its bytes, or the module compiled.
export async function load(source = new URL("./@name@.wasm", import.meta.url)) {
  const instance = await WebAssembly.instantiate(await compiled(source), {});
  return new Network(instance.exports);
}

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
    return WebAssembly.compile(source);
  }
  if (source instanceof URL && source.protocol === "file:" && globalThis.process?.versions?.node) {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(source));
  }
  const answer = await fetch(source);
  if (!answer.ok) throw new NetworkError("NOT_FOUND", `${source} gave status ${answer.status}`);
  return WebAssembly.compile(await answer.arrayBuffer());
}

const aligned = (bytes) => Math.ceil(bytes / 16) * 16;
const list = (given) => (Array.isArray(given) ? given : [given]);

export class Network {
  #c;
  #spare = 0;

  constructor(exports) {
    this.#c = exports;
    exports._initialize?.();
    this.reset();
  }

  // One training step on a batch; its loss.
  trainStep(input, label, rate = LEARNING_RATE) {
    return this.run("train_step", [...list(input), ...list(label)], [rate])[0][0];
  }

  // What the network makes of a batch.
  predict(input) {
    const outputs = this.run("predict", list(input));
    return outputs.length === 1 ? outputs[0] : outputs;
  }

  // Any function of model.h: arrays in, arrays out, in the order of its prototype.
  run(name, arrays = [], numbers = []) {
    const entry = ENTRIES[name];
    if (!entry) throw new TypeError(`there is no ${name}: ${Object.keys(ENTRIES).join(", ")}`);
    check(name, entry, arrays, numbers);
    let at = this.#c.arrays() >>> 0;
    const place = ({ type, elements }) => {
      const view = new globalThis[type](this.#c.memory.buffer, at, elements);
      at += aligned(view.byteLength);
      return view;
    };
    const inputs = entry.arrays.map((kind, i) => {
      const view = place(kind);
      view.set(arrays[i]);
      return view;
    });
    const outputs = entry.outputs.map(place);
    const starts = (views) => views.map((view) => view.byteOffset);
    const call = this.#c[`@name@_${name}`];
    this.#check(call(this.#net, ...starts(inputs), ...numbers, ...starts(outputs)));
    return outputs.map((view) => view.slice());
  }

  // Trained parameters and state as a checkpoint: the same bytes on every target.
  save() {
    const at = this.#room();
    const size = this.#c.@name@_save(this.#net, at, @checkpoint@) >>> 0;
    return new Uint8Array(this.#c.memory.buffer, at, size).slice();
  }

  // Restores a checkpoint. One that does not fit is refused, and nothing changes.
  load(bytes) {
    const at = this.#room();
    const size = Math.min(bytes.length, @checkpoint@ + 1);
    new Uint8Array(this.#c.memory.buffer, at, size).set(bytes.subarray(0, size));
    this.#check(this.#c.@name@_load(this.#net, at, size));
  }

  // Back to the weights it was compiled with.
  reset() {
    this.#c.@name@_init(this.#net);
  }

  get memoryBytes() {
    return this.#c.memory.buffer.byteLength;
  }

  // Parameters and state where they lie. `save` and `load` may move memory: ask again after them.
  get changing() {
    return new Uint8Array(this.#c.memory.buffer, this.#net, @changing@);
  }

  // Addresses are of 32 bits: those above 2 GiB come as negative numbers.
  get #net() {
    return this.#c.net() >>> 0;
  }

  // Where a checkpoint fits, behind everything else: made when it is first needed.
  #room() {
    this.#spare ||= this.#c.memory.grow(Math.ceil((@checkpoint@ + 1) / 65536)) * 65536;
    return this.#spare;
  }

  #check(status) {
    if (status !== 0) throw new NetworkError(...STATUSES[status]);
  }
}

function check(name, { arrays: kinds, numbers: names }, arrays, numbers) {
  const wanted = kinds.map((kind) => kind.name).join(", ");
  if (arrays.length !== kinds.length) {
    throw new TypeError(`${name} takes ${wanted || "no arrays"}, not ${arrays.length} arrays`);
  }
  kinds.forEach(({ name: word, type, elements, shape }, i) => {
    const { length } = arrays[i];
    if (!(arrays[i] instanceof globalThis[type])) throw new TypeError(`${word} is no ${type}`);
    if (length !== elements) {
      throw new RangeError(`${word} has ${length} elements, not ${elements} (${shape.join(" x ")})`);
    }
  });
  if (numbers.length !== names.length || !numbers.every(Number.isFinite)) {
    throw new RangeError(`${name} takes finite numbers: ${names.join(", ") || "none"}`);
  }
}
