"""What a device sends of what it learned: options of `compile`, and the start of a round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from ..errors import SchemeError
from ..ir import Builder, Graph, Link, Relation, Role, Value

CODINGS = {"f32": 4, "f16": 2, "i8": 1, "i16": 2}  # bytes of a value; the order is that of C
DEVIATION = 16  # standard deviation of the noise, in steps of the grid
LARGEST = 32767  # number on the grid
HEADER = 36
CLIPS = (1e-12, 1e12)  # their squares are float32 numbers


@dataclass(frozen=True)
class Send:
    """How an update leaves the device: clipped, then with noise, then the largest part of it.

    `clip` is the largest L2 norm of an update. `noise` is the standard deviation of Gaussian noise
    on every coordinate, as a multiple of `clip`. `top_k` is the fraction of coordinates that is
    sent. `values` codes them: "f32", "f16" or "i8"; with noise they are integers of 16 bits.
    """

    clip: float | None = None
    noise: float = 0.0
    top_k: float = 1.0
    values: str = "f32"

    def __post_init__(self) -> None:
        for name in ("clip", "noise", "top_k"):
            number = getattr(self, name)
            if not (isinstance(number, Real) or (name == "clip" and number is None)):
                raise wrong(f"{name}={number!r} is not a number", f"{name}=1.0")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise wrong(f"clip={self.clip!r} limits nothing", "clip=1.0")
        if self.clip is not None and not CLIPS[0] <= self.clip <= CLIPS[1]:
            words = f"{CLIPS[0]:g} to {CLIPS[1]:g}"
            raise wrong(f"clip={self.clip!r} is outside {words}", "clip=1.0")
        if self.noise and self.clip is None:
            raise wrong("noise without clip protects nothing", "Send(clip=1.0, noise=1.0)")
        least = DEVIATION / (LARGEST - 10 * DEVIATION)
        if not (self.noise == 0 or least <= self.noise < 1e6):
            words = f"noise={self.noise!r} is not 0, nor a multiple of clip from {least:.4f}"
            raise wrong(words, "noise=1.0")
        if not 0 < self.top_k <= 1:
            raise wrong(f"top_k={self.top_k!r} is not a fraction above 0", "top_k=0.01")
        if self.values not in ("f32", "f16", "i8"):
            raise wrong(f"there are no values={self.values!r}", "f32, f16 or i8")
        if self.noise and self.values != "f32":
            raise wrong("with noise, values are 16-bit integers already", "leave values out")

    @property
    def coding(self) -> str:
        return "i16" if self.noise else self.values

    @property
    def grid(self) -> float:
        """The distance of numbers that are sent with noise."""
        return self.noise * (self.clip or 0.0) / DEVIATION

    def count(self, n: int) -> int:
        """How many of n coordinates are sent."""
        return max(1, round(self.top_k * n))

    def most_bytes(self, n: int) -> int:
        """The largest update of n coordinates."""
        k = self.count(n)
        values = HEADER + k * CODINGS[self.coding]
        return values if k == n else values + most_gap_bytes(n - k, k)


def most_gap_bytes(total: int, count: int) -> int:
    """The most bytes of `count` numbers, 7 bits in each, whose sum is at most `total`."""
    found, before = count, 0
    for bits in (7, 14, 21, 28):
        each = (1 << bits) - before  # more in the sum for another byte
        longer = min(count, total // each)
        found += longer
        total -= longer * each
        before = 1 << bits
    return found


def wrong(what: str, try_: str) -> SchemeError:
    return SchemeError(f"Send: {what}", try_=try_)


def is_sent(leaf: Value, masters: set[str]) -> bool:
    """Whether an update is about this leaf: parameters, or the floats that they are rounded from,
    and fractions."""
    if leaf.role is Role.PARAM:
        return leaf.name not in masters
    return leaf.is_a(Relation.MASTER) or leaf.is_a(Relation.CARRY)


def begin(step: Graph) -> Graph:
    """The start of a round: what trains is copied, and changes are counted from there."""
    b = Builder("begin")
    changing = [leaf for leaf, _ in step.state]
    masters = {v.link.of for v in changing if v.link and v.is_a(Relation.MASTER)}
    for leaf in changing:
        if is_sent(leaf, masters):
            data = step.data[leaf.name]
            now = b.leaf(leaf.name, leaf.type, leaf.role, data, leaf.link)
            link = Link(Relation.BASE, leaf.name)
            base = b.leaf(f"{leaf.name}.base", leaf.type, Role.STATE, data, link)
            b.update(base, now)
    return b.finish(())
