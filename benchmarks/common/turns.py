"""Processes that take turns, so that what else runs on the machine slows all of them.

Each says what it has to say in lines of JSON, and works whenever it reads a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any


class Failed(Exception):
    """Why a process has no result."""


class Turns:
    """One of them. Its errors go to a file, whose last line says why it ended."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, patience: float
    ) -> None:
        self.patience = patience
        self.log = open(log, "w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip

    def hear(self) -> dict[str, Any]:
        """The next line that the process says."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            raise Failed(f"silent for {self.patience} s")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            last = ["", *self.log.read().strip().splitlines()][-1]
            raise Failed(f"ended with status {self.process.returncode}: {last[:160]}")
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise Failed(said["failed"])
        return said

    def turn(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; `hear` says why
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return self.hear()

    def finish(self) -> None:
        """No more turns."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def hold(self, cpus: Collection[int]) -> None:
        """Let all of its threads run on these CPUs only."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), cpus)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
