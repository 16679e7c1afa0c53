"""Target: where a program runs, and everything that depends on it.

This is the base class. The targets are in targets/, a package that may use emit/ and runtime/; a
program holds its target and calls these methods, so nothing here imports them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import TargetError, option
from ..ir import Role, Type
from .c import Signature

if TYPE_CHECKING:
    from ..report.trace import Timeline
    from ..runtime import Trainer
    from .program import Program


@dataclass(frozen=True)
class Target(ABC):
    name: str
    isa: tuple[str, ...]  # folders of kernels/; the first one that has a file provides it
    flags: tuple[str, ...]  # for the C compiler
    libraries: tuple[str, ...] = ("-lm",)
    shared: tuple[str, ...] = ()  # kernel files that every program needs
    pool: int = 0  # bytes of RAM that start-up code and shared kernels use
    ram: int | None = None  # bytes of the device; None where the operating system sets the limit
    flash: int | None = None
    stack: int = 0  # bytes reserved, a part of `ram`; 0 where the operating system provides it

    vectors: ClassVar[bool] = False  # buffers and weights are laid out for vector kernels
    inside_inputs: ClassVar[bool] = False  # input buffers are part of the arena
    maps_files: ClassVar[bool] = False  # weights may lie in a file that is mapped into memory
    io_words: ClassVar[str] = "input and label"  # what `arrays` counts

    @property
    def threads(self) -> bool:
        """Whether programs can use several threads."""
        return "threads" in self.shared

    @abstractmethod
    def portable(self) -> Target:
        """The target with kernels in plain C11 only."""

    @property
    @abstractmethod
    def on_this_machine(self) -> Target:
        """A target whose programs run in this process: this one, or the closest to it."""

    def arrays(self, step: Signature, predict: Signature) -> list[Type]:
        """The arrays that the caller allocates for a training step."""
        return [leaf.type for _, leaf in step.leaves if leaf.role is not Role.SCALAR]

    @abstractmethod
    def files(self, program: Program) -> dict[str, str]:
        """The project around the model, by path: main program, build files, start-up code."""

    def samples(self, program: Program, inputs: Any, labels: Any) -> Mapping[str, str]:
        """Files that put these samples into the program."""
        raise TargetError("samples= are for a microcontroller", try_='target="cortex-m7"')

    @abstractmethod
    def load(self, program: Program, threads: int | None = None, watched: bool = True) -> Trainer:
        """Build the program and start it. `watched` checks memory accesses in an emulator."""

    def timeline(self, program: Program, steps: int) -> Timeline:
        """What every kernel call of some training steps costs, in time or in instructions."""
        raise TargetError(
            f"the kernel calls of target {self.name!r} cannot be measured",
            try_=option("target", "host"),
        )

    @abstractmethod
    def run_command(self, folder: Path, name: str) -> str:
        """The shell command that builds and runs a program written to `folder`."""

    def report_lines(self, program: Program) -> list[str]:
        """What the report of a program says about the target."""
        return []
