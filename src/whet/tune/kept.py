"""Where the numbers that `whet tune` measured are kept, and read again."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from ..errors import BuildError
from ..passes.machine import BLOCKS, UNTUNED, Machine
from ..runtime.cache import cache_folder, cache_path, put, trusted

NAME = "machine.json"
RANGES = {"macs": (1e-3, 1e6), "near": (1e-6, 1e6), "far": (1e-6, 1e6), "cache": (1, 1 << 40),
          "wake": (1.0, 1e9), "rows": (0, 12), "lanes": (0, 64)}  # fmt: skip
LATER = {"rows": 0, "lanes": 0}  # what files of earlier versions do not have


def this_machine() -> Machine:
    """What `whet tune` found, or the defaults. WHET_UNTUNED=1 in the environment: the defaults."""
    path = cache_path()
    if os.environ.get("WHET_UNTUNED") or path is None or not trusted(path):
        return UNTUNED
    try:
        found = LATER | json.loads((path / NAME).read_text())
        numbers = {name: found[name] for name in RANGES}
    except (OSError, ValueError, KeyError, TypeError):
        return UNTUNED
    sane = all(
        type(number) in (int, float) and RANGES[name][0] <= number <= RANGES[name][1]
        for name, number in numbers.items()
    )
    sane = sane and all(type(numbers[name]) is int for name in LATER)
    sane = sane and numbers["rows"] in (0, *BLOCKS)
    return Machine(**numbers, tuned=True) if sane else UNTUNED


def forget() -> Path | None:
    """Remove what `keep` wrote: where that was, or None if there was nothing."""
    folder = cache_path()
    path = None if folder is None else folder / NAME
    if path is None or not path.exists():
        return None
    try:
        path.unlink()
    except OSError as error:
        raise BuildError(f"cannot remove {path}", why=str(error.strerror)) from error
    return path


def keep(machine: Machine) -> Path:
    """Write the numbers where `this_machine` finds them."""
    folder = cache_folder()
    if folder != cache_path():
        raise BuildError(
            "there is no folder to keep the numbers in",
            why=f"{cache_path()} cannot be written, or not by you alone",
            try_="XDG_CACHE_HOME=a folder of yours",
        )
    put(folder / NAME, f"{json.dumps(asdict(machine), indent=2)}\n".encode())
    return folder / NAME
