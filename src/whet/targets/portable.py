"""portable: plain C11 for any machine, bit-identical everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..emit.program import Program
from ..emit.target import Target
from ..report.trace import Timeline
from ..runtime import Trainer
from ..runtime.trace import timeline
from .project import filled, library_files, main_c, template, words_of


@dataclass(frozen=True)
class Portable(Target):
    """A program with an operating system around it, loaded into this process to run here."""

    maps_files: ClassVar[bool] = True

    def portable(self) -> Target:
        return PORTABLE

    @property
    def on_this_machine(self) -> Target:
        return self

    def files(self, program: Program) -> dict[str, str]:
        return self.host_files(program) | library_files(words_of(program))

    def host_files(self, program: Program) -> dict[str, str]:
        makefile = filled(template("host.mk"), words_of(program))
        return {"main.c": main_c(program, "host.c"), "Makefile": makefile}

    def load(self, program: Program, threads: int | None = None, watched: bool = True) -> Trainer:
        return Trainer(program, threads=threads)

    def timeline(self, program: Program, steps: int) -> Timeline:
        return timeline(program, steps)

    def run_command(self, folder: Path, name: str) -> str:
        return f"make -C {folder} && {folder}/{name}"


# A fused multiply-add would make the kernels give other bits on other machines.
PORTABLE = Portable("portable", isa=("ref",), flags=("-O3", "-ffp-contract=off"))
