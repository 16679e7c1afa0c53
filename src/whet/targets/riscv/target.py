"""The RISC-V targets: cores of QEMU's machine `virt`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..bare_metal import BareMetal
from . import code as machine_code

SECTIONS = """\
    /* Constants; picolibc has some of its own as variables, which nothing writes to. */
    .constants : {
        *(.srodata .srodata.*)
        *libc.a:*(.data .data.* .sdata .sdata.* .sbss .sbss.*)
        . = ALIGN(4);
    } > FLASH
    flash_end = ORIGIN(FLASH) + LENGTH(FLASH);
    ASSERT(flash_end <= ORIGIN(RAM), "the flash must lie below the RAM: startup.c protects the gap")
    /* The C library's errno, which takes no memory here: startup.c has it. */
    .tbss (NOLOAD) : { *(.tdata .tdata.* .tbss .tbss.*) } > RAM
    .small (NOLOAD) : { *(.sdata .sdata.* .sbss .sbss.*) } > RAM
    ASSERT(SIZEOF(.tbss) <= 4 && SIZEOF(.small) == 0, "variables that have no place here")"""


@dataclass(frozen=True, kw_only=True)
class RiscV(BareMetal):
    march: str  # instruction set and calling convention, in gcc's words
    mabi: str
    machine: str = "virt"
    ram_at: int = 0x80000000
    flash_at: int = 0x20000000

    architecture: ClassVar[str] = "RISC-V"
    folder: ClassVar[str] = "riscv"
    cross: ClassVar[str] = "riscv64-unknown-elf-"  # Debian's has the 32-bit ones too
    packages: ClassVar[tuple[str, ...]] = (
        "gcc-riscv64-unknown-elf",
        "picolibc-riscv64-unknown-elf",
    )
    link_flags: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[str] = SECTIONS
    zig_target: ClassVar[str] = "riscv32-freestanding"
    emulator: ClassVar[str] = "qemu-system-riscv32"
    emulator_package: ClassVar[str] = "qemu-system-misc"
    # Loaded, and started where its entry is, not by the code in the machine's ROM.
    start: ClassVar[tuple[str, ...]] = ("-bios", "none", "-device", "loader,cpu-num=0,file=")

    @property
    def cpu_flags(self) -> tuple[str, ...]:
        where = ("-mcmodel=medany", "-msmall-data-limit=0")
        return (f"-march={self.march}", f"-mabi={self.mabi}", *where, "--specs=picolibc.specs")

    def calls(self, code: bytes, begin: int) -> Iterator[tuple[int, int]]:
        return machine_code.calls(code, begin)


RISCV = (
    RiscV(name="riscv32", march="rv32imafc", mabi="ilp32f", zig_cpu="generic_rv32+m+a+f+c"),
    RiscV(name="riscv32imac", march="rv32imac", mabi="ilp32", zig_cpu="generic_rv32+m+a+c"),
)
