"""Microcontrollers: chips, with the firmware project and the board that runs it."""

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
class BareMetal(Chip):
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
