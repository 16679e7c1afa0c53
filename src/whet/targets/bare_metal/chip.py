"""The data of a chip: its memory, and its names in compilers and in the emulator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...emit.c import Signature
from ...emit.program import Program
from ...emit.target import Target
from ...errors import TargetError, option
from ...ir import Role, Type


@dataclass(frozen=True, kw_only=True)
class Chip(Target):
    machine: str  # QEMU's name
    zig_cpu: str  # zig's, with all that it has
    ram_at: int = 0x20000000
    flash_at: int = 0

    isa: tuple[str, ...] = ("ref",)
    flags: tuple[str, ...] = ("-O2", "-ffp-contract=off")
    pool: int = 12  # the two ends of the channel to the emulator, and errno
    ram: int = 256 << 10
    flash: int = 1 << 20
    stack: int = 8 << 10  # enough for any kernel; a run measures what is used

    inside_inputs: ClassVar[bool] = True
    io_words: ClassVar[str] = "label and output"

    # Those of a family:
    architecture: ClassVar[str]  # in messages
    folder: ClassVar[str]  # of kernels/main/: its start-up code
    cross: ClassVar[str]  # prefix of its compiler's commands
    packages: ClassVar[tuple[str, ...]]  # Debian's, of compiler and C library
    link_flags: ClassVar[tuple[str, ...]]
    sections: ClassVar[str]  # lines of the linker script, of what only its compiler writes
    zig_target: ClassVar[str]
    emulator: ClassVar[str]  # the command
    emulator_package: ClassVar[str]
    start: ClassVar[tuple[str, ...]] = ("-kernel", "")  # its arguments, up to the firmware's path
    own: ClassVar[tuple[int, int]] = (0, 0)  # where the processor's registers are, if in memory

    @property
    @abstractmethod
    def cpu_flags(self) -> tuple[str, ...]:
        """For the compiler: which processor it is."""

    @abstractmethod
    def calls(self, code: bytes, begin: int) -> Iterator[tuple[int, int]]:
        """Every call in the machine code that lies at `begin`: where it is, and where it goes."""

    def arrays(self, step: Signature, predict: Signature) -> list[Type]:
        labels = [leaf.type for _, leaf in step.leaves if leaf.role is Role.LABEL]
        return labels + [value.type for _, value in predict.outputs]

    def report_lines(self, program: Program) -> list[str]:
        return [f"for {self.name}: {self.ram:,} bytes of RAM, {self.flash:,} of flash"]


def chip_of(program: Program) -> Chip:
    """The chip that a program was compiled for."""
    if not isinstance(program.target, Chip):
        raise TargetError(
            f"a program for {program.target.name} does not run on a board",
            try_=option("target", "cortex-m7"),
        )
    return program.target
