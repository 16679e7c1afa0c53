"""What a machine's kernels cost: numbers that choose between variants of a kernel.

The defaults are those of a server core of 2022. `whet tune` measures this machine and keeps its
numbers in the cache folder; compiling reads them and never measures.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from .cache import cache_folder
from .ir import Node, Type
from .ops.conv import channels_of, tiles_and_floats


@dataclass(frozen=True)
class Machine:
    """Coefficients of the cost model, in nanoseconds of one thread."""

    macs: float = 48.0  # multiply-adds per ns of a large matrix product
    near: float = 0.2  # to bring a float into another form while it is in the cache
    far: float = 0.7  # and when it is not
    cache: int = 2_000_000  # floats that count as near
    wake: float = 1000.0  # to share work with another thread
    tuned: bool = False

    @property
    def grain(self) -> int:
        """Multiplications that are worth sharing: those of four times the time that it takes."""
        return max(1, round(4 * self.wake * self.macs))

    def direct(self, node: Node) -> float:
        """Nanoseconds of a convolution, or of one of its gradients, summed tap by tap."""
        return node.op.macs(node) / self.macs

    def winograd(self, node: Node, result: Type) -> float:
        """The same by Winograd's method: 16 products for 4 pixels, and changes of form."""
        c, o = channels_of(node)
        tiles, _ = tiles_and_floats(node, result)
        weights = 16 * c * o
        forms = self.near * 16 * tiles * (c + o)
        forms += (self.near if weights < self.cache else self.far) * weights
        return tiles * weights / self.macs + forms


UNTUNED = Machine()


def tuned_file() -> Path:
    return cache_folder() / "machine.json"


def this_machine() -> Machine:
    """What `whet tune` found, or the defaults. WHET_UNTUNED=1 in the environment: the defaults."""
    if os.environ.get("WHET_UNTUNED"):
        return Machine()
    try:
        found = json.loads(tuned_file().read_text())
        machine = Machine(**{f.name: found[f.name] for f in fields(Machine)})
    except (OSError, ValueError, KeyError, TypeError):
        return Machine()
    numbers = (machine.macs, machine.near, machine.far, machine.wake)
    return machine if all(math.isfinite(n) and n > 0 for n in numbers) else Machine()


def keep(machine: Machine) -> Path:
    path = tuned_file()
    path.write_text(json.dumps(asdict(machine), indent=2) + "\n")
    return path
