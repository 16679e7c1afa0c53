"""Build a written program with its own Makefile, and run the example."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import whet


def make(program: whet.Program, folder: Path, **settings: str) -> Path:
    """The example, built in `folder` with these variables of the Makefile."""
    program.write(folder)
    environment = {k: v for k, v in os.environ.items() if k not in ("CFLAGS", "MAKEFLAGS")}
    command = ["make", "-C", str(folder), *(f"{k}={v}" for k, v in settings.items())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[:4000]
    return folder / program.name


def run(program: Path, *args: str, emulator: str = "", **environment: str) -> str:
    """What it prints; it must not complain."""
    done = subprocess.run(
        [*emulator.split(), str(program), *args],
        cwd=program.parent,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


def losses(printed: str) -> list[float]:
    return [float(word) for word in re.findall(r"loss (\S+)", printed)]
