"""Build a program for a microcontroller, and read off what the linker made of it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ...emit.program import Program
from ...errors import BuildError, option
from ...runtime.build import kernel_name, version
from ...runtime.cache import kept
from ..project import template
from .chip import Chip, chip_of

SECTIONS = ("text", "data", "bss", "stack")


@dataclass(frozen=True)
class Firmware:
    """A built program: its file, the bytes of its sections, and where its symbols lie."""

    path: Path
    sections: dict[str, int]
    symbols: dict[str, tuple[int, int]] = field(repr=False)  # address and size

    @property
    def ram(self) -> int:
        """All of it: the stack too, and the gaps that alignment leaves."""
        return self.sections["ram"]

    @property
    def flash(self) -> int:
        return self.sections["flash"]

    def code(self, begin: int, size: int) -> bytes:
        """The bytes at an address of the flash."""
        from elftools.elf.elffile import ELFFile

        with open(self.path, "rb") as file:
            text = ELFFile(file).get_section_by_name(".text")
            assert text is not None
            start = begin - text["sh_addr"]
            return bytes(text.data()[start : start + size])


def firmware(program: Program) -> Firmware:
    """The program's firmware, built once and kept for as long as the program lives."""
    if program not in _built:
        folder = tempfile.TemporaryDirectory(prefix="whet-")
        _built[program] = folder, build(program, Path(folder.name))
    return _built[program][1]


_built: weakref.WeakKeyDictionary[Program, tuple[tempfile.TemporaryDirectory[str], Firmware]] = (
    weakref.WeakKeyDictionary()
)


def build(program: Program, folder: Path) -> Firmware:
    """Write the program to `folder` and run its Makefile there, which finds kernels compiled if
    they were compiled before."""
    program.write(folder)
    chip = chip_of(program)
    setting = [bytes(text).decode() for name, text in program.files.items() if "/libc/" in name]
    setting += [template("bare-metal/firmware.mk"), *chip.cpu_flags, *program.flags]
    setting += [chip.zig_target, chip.zig_cpu, *compiler(chip), identity(chip)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        kernels = sorted((folder / "kernels").glob("*.c"))
        list(pool.map(lambda source: kernel_object(program, source, folder, setting), kernels))
    make(program, folder, f"{program.name}.elf")
    built = read_elf(folder / f"{program.name}.elf")
    program.measured.update({"built ram": built.ram, "built flash": built.flash})
    return built


def kernel_object(program: Program, source: Path, folder: Path, setting: list[str]) -> None:
    target = folder / "build" / "kernels" / f"{source.stem}.o"

    def compiled() -> bytes:
        make(program, folder, str(target.relative_to(folder)))
        return target.read_bytes()

    content = kept(kernel_name(source, folder, setting), compiled)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def make(program: Program, folder: Path, target: str) -> None:
    command = ["make", "-s", f"-j{os.cpu_count() or 1}", *compiler(chip_of(program)), target]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise BuildError("make is not installed", try_="apt install make") from error
    if done.returncode != 0:
        raise refused(program, done.stderr)


def gcc(chip: Chip) -> str:
    return f"{os.environ.get('CROSS', chip.cross)}gcc"


def compiler(chip: Chip) -> list[str]:
    """What to tell make: nothing if there is a gcc for the chip, else the compiler in ziglang."""
    if shutil.which(gcc(chip)):
        return []
    if importlib.util.find_spec("ziglang") is not None:
        python = shlex.quote(sys.executable).replace("$", "$$")  # for the shell, through make
        return [f"ZIG={python} -m ziglang"]
    raise BuildError(
        f"no compiler for {chip.name} found",
        why=f"looked for {gcc(chip)} and for the Python package ziglang",
        try_=(
            "make setup-mcu",
            f"apt install {' '.join(chip.packages)}  (Debian, Ubuntu)",
            "pip install ziglang",
        ),
    )


def identity(chip: Chip) -> str:
    """Of the compiler, so that what another one compiled is not taken for its own."""
    found = shutil.which(gcc(chip))
    command = (sys.executable, "-m", "ziglang", "cc") if found is None else (found,)
    return f"{shlex.join(command)}\0{version(command)}"


def refused(program: Program, words: str) -> BuildError:
    """What the compiler or the linker had to say; that memory is short comes first."""
    lines = words.strip().splitlines()
    short = [line for line in lines if "overflowed" in line or "will not fit" in line]
    chip = chip_of(program)
    if short:
        return BuildError(
            f"the program does not fit into {chip.ram:,} bytes of RAM and {chip.flash:,} of flash",
            why=short,
            try_=f"another {option('update')}, or a larger {option('ram')} or {option('flash')}",
        )
    return BuildError("the firmware could not be built", why=lines[:20])


def read_elf(path: Path) -> Firmware:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with open(path, "rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        symbols = {
            s.name: (s["st_value"] & ~1, s["st_size"])  # the lowest bit says that it is Thumb code
            for s in (table.iter_symbols() if isinstance(table, SymbolTableSection) else ())
            if s["st_shndx"] != "SHN_UNDEF"
        }
        found = {s.name.lstrip("."): s for s in elf.iter_sections() if s["sh_flags"] & 2}
        sizes = {name: found[name]["sh_size"] if name in found else 0 for name in SECTIONS}
        ram = [s for name, s in found.items() if name in ("data", "bss", "stack")]
        in_ram = max(s["sh_addr"] + s["sh_size"] for s in ram) - min(s["sh_addr"] for s in ram)
        in_flash = sum(s["sh_size"] for s in found.values() if s["sh_type"] != "SHT_NOBITS")
    sizes |= {"ram": in_ram, "flash": in_flash}
    return Firmware(path, sizes, symbols)
