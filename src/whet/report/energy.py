"""Estimate the energy of a step: counted accesses and operations, times published figures.

Every kernel call reads its operands and writes its results once. Where an access is served follows
from how many other bytes were touched since the same bytes were touched last: the smallest memory
that holds those has them, as in a cache that replaces what was used longest ago. The step is taken
to run again and again, so what it touches first was touched by the step before. What a kernel
re-reads by itself is not counted, nor is element-wise arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import DType, Node, Role, Value
from ..memory.plan import Buffer, Plan

if TYPE_CHECKING:
    from ..emit.target import Target

SOURCE = (
    'M. Horowitz, "Computing\'s energy problem (and what we can do about it)", ISSCC 2014, '
    "figure 1.1.9: 45 nm, 0.9 V"
)
KIB = 1024


@dataclass(frozen=True)
class Level:
    """A memory, what it holds in bytes (None for everything), and picojoules per byte."""

    name: str
    bytes: int | None
    per_byte: float


# Of 64 bits: 10, 20 and 100 pJ for caches of 8 KiB, 32 KiB and 1 MiB; of 32 bits: 640 pJ for DRAM.
CACHES = (
    Level("SRAM, 8 KiB", 8 * KIB, 10 / 8),
    Level("SRAM, 32 KiB (L1)", 32 * KIB, 20 / 8),
    Level("SRAM, 1 MiB (L2)", 1024 * KIB, 100 / 8),
    Level("DRAM", None, 640 / 4),
)

# A multiplication and the addition of its product. Integer sums have 32 bits, those of bfloat16
# are float32; its multiplication counts as one of 16-bit floats.
MACS: Mapping[str, float] = {
    "float32": 3.7 + 0.9,
    "bfloat16": 1.1 + 0.9,
    "int32": 3.1 + 0.1,
    "int8": 0.2 + 0.1,
}


@dataclass(frozen=True)
class Factors:
    """Picojoules per byte of each memory, the smallest first, and per multiply-accumulate."""

    levels: tuple[Level, ...] = CACHES
    macs: Mapping[str, float] = field(default_factory=lambda: dict(MACS))
    source: str = SOURCE


def factors_for(target: Target) -> Factors:
    """Those of a machine with caches; a microcontroller has one SRAM, and flash counts as that."""
    if target.ram is None:
        return Factors()
    fitting = next((level for level in CACHES if target.ram <= (level.bytes or 0)), CACHES[2])
    return Factors(levels=(replace(fitting, name="SRAM of the chip", bytes=None),))


@dataclass(frozen=True)
class Energy:
    """Bytes read and written by level, multiply-accumulates by format, and what they take."""

    factors: Factors
    accesses: tuple[int, ...]
    macs: Mapping[str, int]
    working_set: int  # distinct bytes that a step touches

    @property
    def memory(self) -> float:
        """Picojoules of all accesses."""
        pairs = zip(self.accesses, self.factors.levels, strict=True)
        return sum(count * level.per_byte for count, level in pairs)

    @property
    def arithmetic(self) -> float:
        """Picojoules of all multiply-accumulates."""
        return sum(count * self.factors.macs[kind] for kind, count in self.macs.items())

    @property
    def total(self) -> float:
        return self.memory + self.arithmetic

    @property
    def level(self) -> Level:
        """The smallest memory that the working set fits in."""
        return self.factors.levels[held_by(self.working_set, self.factors.levels)]

    def as_dict(self) -> dict[str, Any]:
        levels = zip(self.factors.levels, self.accesses, strict=True)
        return {
            "source": self.factors.source,
            "working_set": self.working_set,
            "levels": [
                {"name": x.name, "bytes": x.bytes, "per_byte": x.per_byte, "accesses": count}
                for x, count in levels
            ],
            "macs": [
                {"name": kind, "each": self.factors.macs[kind], "count": count}
                for kind, count in self.macs.items()
            ],
        }


def energy_of(plan: Plan, factors: Factors | None = None) -> Energy:
    """The energy of one run of an entry point."""
    factors = Factors() if factors is None else factors
    macs: dict[str, int] = {}
    for node in plan.graph.nodes:
        if count := node.op.macs(node):
            macs[arithmetic(node)] = macs.get(arithmetic(node), 0) + count
    accesses, touched = served(Places(plan), factors.levels)
    return Energy(factors, accesses, macs, touched)


def arithmetic(node: Node) -> str:
    """The format that a node multiplies in."""
    if node.op.multiplies:
        return {"bf16": "bfloat16"}.get(node.op.multiplies, node.op.multiplies)
    kinds = {v.type.dtype for v in node.ins[:2]}
    if DType.F32 in kinds or DType.BF16 in kinds:
        return "float32"
    return "int32" if kinds & {DType.I16, DType.I32} else "int8"


def held_by(size: int, levels: tuple[Level, ...]) -> int:
    """The smallest level that holds so many bytes; the last one holds everything."""
    fits = (i for i, level in enumerate(levels) if level.bytes is None or size <= level.bytes)
    return next(fits, len(levels) - 1)


class Places:
    """Pieces of memory: those between all ends of buffers in the arena, and arrays outside of it.

    `touches` are the accesses of a step in order: pieces, and the bytes read or written.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        ends = {end for b in plan.buffers for end in (b.offset, b.end)}
        self.ends = sorted(ends)
        self.sizes = [end - start for start, end in pairwise(self.ends)]
        self.outside: dict[Value, int] = {}
        self.touches = [self.touch(v, size) for v, size in accesses(plan) if size]

    def touch(self, value: Value, size: int) -> tuple[range, int]:
        home = self.plan.home[value]
        if isinstance(home, Buffer):
            first = self.ends.index(home.offset)
            last = int(np.searchsorted(self.ends, min(home.offset + size, home.end)))
            return range(first, last), size
        place = self.outside.setdefault(home, len(self.sizes))
        if place == len(self.sizes):
            self.sizes.append(0)
        self.sizes[place] = max(self.sizes[place], size)
        return range(place, place + 1), size


def accesses(plan: Plan) -> Iterator[tuple[Value, int]]:
    """Every value that a call reads or writes, with its bytes; a workspace is written, then read.

    A look-up reads as much of its table as it writes.
    """
    for node in plan.graph.nodes:
        if node.op.call(node) is None:
            continue
        written = sum(v.type.bytes for v in node.outs)
        looks_up = bool(node.op.bounds(node)) and not node.op.macs(node)
        for v in node.ins:
            if v.role is not Role.SCALAR:
                yield v, min(v.type.bytes, written) if looks_up else v.type.bytes
        if (space := plan.workspace.get(node)) is not None:
            yield space, space.type.bytes
            yield space, space.type.bytes
        for v in node.outs:
            yield v, v.type.bytes
    for to, source in plan.copies:
        yield source, source.type.bytes
        yield to, to.type.bytes


def served(places: Places, levels: tuple[Level, ...]) -> tuple[tuple[int, ...], int]:
    """Bytes by the level that serves them in a step that follows another, and bytes touched."""
    sizes = np.array(places.sizes, np.int64)
    last = np.full(len(sizes), -1, np.int64)
    counts = [0] * len(levels)
    steps = 2 * len(places.touches)
    for time, (pieces, size) in enumerate(places.touches * 2):
        for piece in pieces if time >= steps // 2 else ():
            between = int(sizes[last >= last[piece]].sum())  # and its own, and of the same access
            part = min(size, int(sizes[piece]))
            counts[held_by(between, levels)] += part
            size -= part
        last[pieces.start : pieces.stop] = time
    return tuple(counts), int(sizes[last >= 0].sum())
