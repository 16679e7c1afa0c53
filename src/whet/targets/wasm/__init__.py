"""wasm: a WebAssembly module with a loader in JavaScript, run in Node."""

from .target import WASM, Wasm

__all__ = ["WASM", "Wasm"]
