"""Programs for other machines with an operating system, built here with the compiler in ziglang."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..emit.program import Program
from ..emit.target import Target
from ..errors import BuildError, TargetError, option
from ..report.trace import Timeline
from ..runtime import Trainer
from .portable import PORTABLE, Portable
from .project import filled, library_files, main_c, template, words_of


@dataclass(frozen=True, kw_only=True)
class Cross(Portable):
    """The portable program, with a Makefile whose compiler makes programs for that machine."""

    isa: tuple[str, ...] = PORTABLE.isa
    flags: tuple[str, ...] = PORTABLE.flags
    machine: tuple[str, ...]  # what zig is told
    runner: str = ""  # the command that runs such a program here, if there is one
    suffix: str = ""

    def portable(self) -> Target:
        return self

    @property
    def on_this_machine(self) -> Target:
        return PORTABLE

    def files(self, program: Program) -> dict[str, str]:
        words = words_of(program) | {
            "target": self.name,
            "machine": " ".join(self.machine),
            "run": f"{self.runner} ./".lstrip(),
            "suffix": self.suffix,
        }
        makefile = filled(template("cross.mk"), words)
        return {"main.c": main_c(program, "host.c"), "Makefile": makefile} | library_files(words)

    def load(self, program: Program, threads: int | None = None, watched: bool = True) -> Trainer:
        raise TargetError(
            f"a program for {self.name} does not run in this process",
            try_=(f"{option('target', 'portable')}, which has the same bits", "write() and make"),
        )

    def timeline(self, program: Program, steps: int) -> Timeline:
        return Target.timeline(self, program, steps)

    def run_command(self, folder: Path, name: str) -> str:
        return f"make -C {folder}" + (" run" if self.runner else "")


class Windows(Cross):
    maps_files: ClassVar[bool] = False


CROSS: tuple[Cross, ...] = (
    Cross(
        name="aarch64-linux",  # linked statically, so that it runs in Android's shell too
        machine=("-target aarch64-linux-musl", "-static"),
        runner="qemu-aarch64",
    ),
    Cross(
        name="armv7-linux",
        machine=("-target arm-linux-musleabihf", "-mcpu=cortex_a7", "-static"),
        runner="qemu-arm",
    ),
    Cross(
        name="riscv64-linux",
        machine=("-target riscv64-linux-musl", "-static"),
        runner="qemu-riscv64",
    ),
    Windows(name="x86_64-windows", machine=("-target x86_64-windows-gnu",), suffix=".exe"),
    Cross(name="aarch64-macos", machine=("-target aarch64-macos",)),
)


def build(program: Program, folder: str | Path) -> Path:
    """Write the program to `folder` and build its example there; the path of the executable."""
    target = program.target
    if not isinstance(target, Cross):
        raise TargetError(
            f"{target.name} is not for another machine", try_=option("target", CROSS[0].name)
        )
    zig, root = compiler(), program.write(folder)
    command = ["make", "-s", f"-j{os.cpu_count() or 1}", f"ZIG={zig}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[:20]
        raise BuildError(f"the program for {target.name} could not be built", why=why)
    return root / f"{program.name}{target.suffix}"


def compiler() -> str:
    """The command of zig, as make takes it."""
    if importlib.util.find_spec("ziglang") is None:
        raise BuildError(
            "the compiler for other machines is not installed",
            why="looked for the Python package ziglang",
            try_="pip install ziglang",
        )
    python = shlex.quote(sys.executable).replace("$", "$$")  # for the shell, through make
    return f"{python} -m ziglang"
