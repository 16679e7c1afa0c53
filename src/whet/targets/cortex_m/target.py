"""The Cortex-M targets: chips, with the firmware project and the board that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...emit.program import Program
from ...emit.target import Target
from ...errors import DataError
from ...report.trace import Timeline
from ...runtime.trace import made_up
from ..portable import PORTABLE
from .board import Board
from .chip import Chip
from .project import project_files, sample_files


@dataclass(frozen=True, kw_only=True)
class CortexM(Chip):
    def portable(self) -> Target:
        return replace(self, isa=("ref",))

    @property
    def on_this_machine(self) -> Target:
        return PORTABLE

    def files(self, program: Program) -> dict[str, str]:
        return project_files(program, self)

    def samples(self, program: Program, inputs: Any, labels: Any) -> Mapping[str, str]:
        return sample_files(program, inputs, labels)

    def load(self, program: Program, threads: int | None = None, watched: bool = True) -> Board:
        if threads not in (None, 1):
            raise DataError(f"threads={threads}: a microcontroller has one core")
        return Board(program, watched)

    def timeline(self, program: Program, steps: int) -> Timeline:
        """Mean steps, as counted by the emulator."""
        board, feed = Board(program), made_up(program)
        with board:
            for _ in range(steps):
                board.feed(feed)
        return board.profile().timeline(steps)

    def run_command(self, folder: Path, name: str) -> str:
        return f"make -C {folder} run"


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
