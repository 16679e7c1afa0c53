"""What a machine's kernels cost: numbers that choose between variants of a kernel.

The defaults are those of a server core of 2022. `whet tune` measures this machine and keeps its
numbers in the cache folder; compiling reads them and never measures.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from .cache import cache_folder, cache_path, put, trusted
from .errors import BuildError


@dataclass(frozen=True)
class Machine:
    """Coefficients of the cost model, in nanoseconds of one thread."""

    macs: float = 48.0  # multiply-adds per ns of a large matrix product
    near: float = 0.2  # to bring a float into another form while it is in the cache
    far: float = 0.7  # and when it is not
    cache: int = 2_000_000  # floats that count as near
    wake: float = 1000.0  # to share work with another thread
    rows: int = 0  # of a block of a matrix product; 0 leaves them to the kernels
    lanes: int = 0  # of the vectors that they were measured with
    tuned: bool = False

    @property
    def grain(self) -> int:
        """Multiplications that are worth sharing: those of 16 times the time that it takes.

        Half of the result is then in the other core's cache, which costs the next kernel as well.
        """
        return max(1, round(16 * self.wake * self.macs))

    def direct(self, macs: int) -> float:
        """Nanoseconds of a convolution, or of one of its gradients, summed tap by tap."""
        return macs / self.macs

    def winograd(self, tiles: int, c: int, o: int) -> float:
        """The same by Winograd's method: 16 products for a tile, and changes of form."""
        weights = 16 * c * o
        forms = self.near * 16 * tiles * (c + o)
        forms += (self.near if weights < self.cache else self.far) * weights
        return tiles * weights / self.macs + forms


UNTUNED = Machine()


NAME = "machine.json"
RANGES = {"macs": (1e-3, 1e6), "near": (1e-6, 1e6), "far": (1e-6, 1e6), "cache": (1, 1 << 40),
          "wake": (1.0, 1e9), "rows": (0, 12), "lanes": (0, 64)}  # fmt: skip
LATER = {"rows": 0, "lanes": 0}  # what files of earlier versions do not have
BLOCKS = (6, 8, 10, 12)  # rows that a block of a matrix product may have


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
