"""The data of a Cortex-M target: its memory, and its names in compilers and in QEMU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...emit.c import Signature
from ...emit.program import Program
from ...emit.target import Target
from ...errors import TargetError, option
from ...ir import Role, Type


@dataclass(frozen=True, kw_only=True)
class Chip(Target):
    cpu: str  # gcc's name
    fpu: str
    zig_cpu: str  # with its floating-point unit, which zig would otherwise emulate
    machine: str  # QEMU's name
    ram_at: int = 0x20000000
    flash_at: int = 0

    isa: tuple[str, ...] = ("dsp", "ref")
    flags: tuple[str, ...] = ("-O2", "-ffp-contract=off")
    pool: int = 12  # the two ends of the channel to the emulator, and errno
    ram: int = 256 << 10
    flash: int = 1 << 20
    stack: int = 8 << 10  # enough for any kernel; a run measures what is used

    inside_inputs: ClassVar[bool] = True
    io_words: ClassVar[str] = "label and output"

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        return (f"-mcpu={self.cpu}", "-mthumb", "-mfloat-abi=hard", f"-mfpu={self.fpu}")

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
