// Drives a module for whet: questions come on the standard input, answers go to the standard
// output. Both are a length, JSON of that length, and the bytes that it announces.
import { readSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { ENTRIES, load } = await import(pathToFileURL(`${process.argv.at(-1)}/index.js`));
const network = await load();

function read(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; ) {
    const count = readSync(0, bytes, at, size - at);
    if (count === 0) process.exit(0);
    at += count;
  }
  return bytes;
}

function write(bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

function answer(head, parts = []) {
  const size = parts.reduce((sum, part) => sum + part.byteLength, 0);
  const text = new TextEncoder().encode(JSON.stringify({ ...head, size }));
  write(new Uint8Array(new Uint32Array([text.length]).buffer));
  write(text);
  for (const part of parts) write(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
}

const COMMANDS = {
  run({ entry, numbers }, bytes) {
    let at = 0;
    const arrays = ENTRIES[entry].arrays.map(({ type, elements }) => {
      const array = new globalThis[type](bytes.buffer, at, elements);
      at += array.byteLength + ((-array.byteLength & 15) >>> 0);
      return array;
    });
    return network.run(entry, arrays, numbers);
  },
  read: () => [network.changing],
  write(_, bytes) {
    network.changing.set(bytes);
    return [];
  },
};

for (;;) {
  const [length] = new Uint32Array(read(4).buffer);
  const question = JSON.parse(new TextDecoder().decode(read(length)));
  const bytes = read(question.size);
  try {
    const start = performance.now();
    const parts = COMMANDS[question.command](question, bytes);
    const ms = performance.now() - start;
    answer({ status: "OK", memory: network.memoryBytes, ms }, parts);
  } catch (error) {
    answer({ status: error.code ?? "FAILED", why: String(error) });
  }
}
