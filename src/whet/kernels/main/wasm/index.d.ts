// @name@: a network that trains where it runs.
//
@axes@

export type Input = @input@;
export type Label = @label@;
export type Output = @output@;
export type Entry = @names@;
export type AnyArray =
  | Float32Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint8Array
  | Uint16Array;

export interface ArrayKind {
  readonly name: string;
  readonly type: string;
  readonly elements: number;
  readonly shape: readonly number[];
}

/** The functions of model.h: their arrays, numbers and results in order; the first are inputs. */
export const ENTRIES: Readonly<
  Record<
    Entry,
    {
      readonly arrays: readonly ArrayKind[];
      readonly inputs: number;
      readonly numbers: readonly string[];
      readonly outputs: readonly ArrayKind[];
    }
  >
>;
export const LEARNING_RATE: number;

export class NetworkError extends Error {
  readonly code: @codes@;
}

/** A network of its own: `source` is where the module is, or its bytes, or the module compiled. */
export function load(
  source?: URL | string | ArrayBuffer | ArrayBufferView | WebAssembly.Module,
): Promise<Network>;

export class Network {
  private constructor();
  /** One training step on a batch; its loss. */
  trainStep(input: Input, label: Label, rate?: number): number;
  /** What the network makes of a batch. */
  predict(input: Input): Output;
  /** Any function of model.h: arrays in, arrays out, in the order of its prototype. */
  run(name: Entry, arrays?: readonly AnyArray[], numbers?: readonly number[]): AnyArray[];
  /** Trained parameters and state as a checkpoint: the same bytes on every target. */
  save(): Uint8Array;
  /** Restores a checkpoint. One that does not fit is refused, and nothing changes. */
  load(bytes: Uint8Array): void;
  /** Back to the weights it was compiled with. */
  reset(): void;
  /** Bytes of the module's memory. */
  readonly memoryBytes: number;
  /** Parameters and state where they lie; `save` and `load` may move them. */
  readonly changing: Uint8Array;
}
