"""The Cortex-M targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..bare_metal import BareMetal
from . import thumb


@dataclass(frozen=True, kw_only=True)
class CortexM(BareMetal):
    cpu: str  # gcc's name
    fpu: str

    isa: tuple[str, ...] = ("dsp", "ref")

    architecture: ClassVar[str] = "Arm"
    folder: ClassVar[str] = "cortex-m"
    cross: ClassVar[str] = "arm-none-eabi-"
    packages: ClassVar[tuple[str, ...]] = ("gcc-arm-none-eabi", "libnewlib-arm-none-eabi")
    link_flags: ClassVar[tuple[str, ...]] = ("--specs=nano.specs",)
    sections: ClassVar[str] = "    .ARM.exidx : { *(.ARM.exidx .ARM.exidx.*) } > FLASH"
    zig_target: ClassVar[str] = "thumb-freestanding-eabihf"
    emulator: ClassVar[str] = "qemu-system-arm"
    emulator_package: ClassVar[str] = "qemu-system-arm"
    own: ClassVar[tuple[int, int]] = (0xE0000000, 0xE0100000)

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        return (f"-mcpu={self.cpu}", "-mthumb", "-mfloat-abi=hard", f"-mfpu={self.fpu}")

    def calls(self, code: bytes, begin: int) -> Iterator[tuple[int, int]]:
        return thumb.calls(code, begin)


CORTEX_M = (
    CortexM(
        name="cortex-m7",
        cpu="cortex-m7",
        fpu="fpv5-sp-d16",
        zig_cpu="cortex_m7+fp_armv8d16sp",
        machine="mps2-an500",
    ),
    CortexM(
        name="cortex-m4",
        cpu="cortex-m4",
        fpu="fpv4-sp-d16",
        zig_cpu="cortex_m4+vfp4d16sp",
        machine="mps2-an386",
    ),
    CortexM(  # starts in the secure state, whose memory has bit 28 of the address set
        name="cortex-m33",
        cpu="cortex-m33",
        fpu="fpv5-sp-d16",
        zig_cpu="cortex_m33+fp_armv8d16sp",
        machine="mps2-an505",
        ram_at=0x38000000,
        flash_at=0x10000000,
    ),
)
