// Train on one made-up batch, over and over: the loss must fall. In Node: make run
import { ENTRIES, load } from "./package/index.js";

const network = await load();
const arrays = ENTRIES.train_step.arrays.map(({ type, elements }, which) => {
  const array = new globalThis[type](elements);
  let word = 1;
  if (which > 0 || type === "Int32Array") return array.map((_, i) => (which > 0 ? i % 2 : 0));
  return array.map(() => {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0;
    return type === "Int8Array" ? (word >>> 24) - 128 : (word >>> 8) / 8388608 - 1;
  });
});
const half = ENTRIES.train_step.inputs;
const [x, y] = [arrays.slice(0, half), arrays.slice(half)];
for (let step = 1; step <= 40; step++) {
  const start = performance.now();
  const loss = network.trainStep(x, y);
  const ms = performance.now() - start;
  if (step === 1 || step % 10 === 0) {
    console.log(`step ${step}  loss ${loss.toFixed(6)}  ${ms.toFixed(2)} ms`);
  }
}
console.log(`${network.memoryBytes} bytes of memory, ${network.save().length} of them to save`);
