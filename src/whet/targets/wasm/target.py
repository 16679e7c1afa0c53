"""The WebAssembly target: how memory is counted, and how a program is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...emit.c import Signature
from ...emit.program import Program
from ...emit.target import Target
from ...errors import DataError
from ...ir import Type
from ..portable import PORTABLE
from .node import Node
from .project import Memory, project_files

FLAGS = ("-O3", "-mbulk-memory", "-mnontrapping-fptoint", "-ffp-contract=off")


@dataclass(frozen=True)
class Wasm(Target):
    """One network in a module's memory, on one thread; other networks are other instances."""

    io_words: ClassVar[str] = "input, label and output"

    def portable(self) -> Target:
        return SCALAR

    @property
    def on_this_machine(self) -> Target:
        return PORTABLE

    @property
    def threads(self) -> bool:
        return False

    def arrays(self, step: Signature, predict: Signature) -> list[Type]:
        return super().arrays(step, predict) + [value.type for _, value in predict.outputs]

    def files(self, program: Program) -> dict[str, str]:
        return project_files(program)

    def load(self, program: Program, threads: int | None = None, watched: bool = True) -> Node:
        if threads not in (None, 1):
            raise DataError(f"threads={threads}: a WebAssembly program has one thread")
        return Node(program)

    def run_command(self, folder: Path, name: str) -> str:
        return f"make -C {folder} run  # trains {name} in Node"

    def report_lines(self, program: Program) -> list[str]:
        memory = Memory.of(program)
        return [
            f"for wasm: {memory.initial:,} bytes of linear memory, {memory.most:,} once a "
            "checkpoint is saved or loaded"
        ]


@dataclass(frozen=True)
class Simd(Wasm):
    """With kernels for its vectors of 128 bits."""

    vectors: ClassVar[bool] = True


WASM = Simd(
    "wasm",
    isa=("wasm", "vec", "ref"),
    flags=(*FLAGS, "-msimd128"),
    shared=("matmul", "outer", "threads"),
    stack=256 << 10,
)
SCALAR = Wasm("wasm", isa=("ref",), flags=FLAGS, stack=256 << 10)
