"""Find offsets in one arena for buffers with known lifetimes.

First fit in a good order nearly always reaches the lower bound, the most bytes live at any step.
Where it does not, a search repairs the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

import numpy as np

from ..ir import Array

# The search effort in comparisons of buffer pairs, some 0.1 microseconds each.
EFFORT, EFFORT_PER_BUFFER = 5_000_000, 50_000
DRAWS = 4  # candidates, of which the latest in the order is taken: small moves get further
ROUNDS, GOOD_ENOUGH = 6, 1.01  # repeats while the arena is not within 1 % of its bound
WORTHWHILE = 10  # placements; with less effort left, the search would find nothing


@dataclass(frozen=True, eq=False)
class Lives:
    """The bytes of every buffer, and the first and last step, inclusive, at which it is live."""

    bytes: Array
    first: Array
    last: Array

    @cached_property
    def loads(self) -> Array:
        """The bytes live at every step: no arena can be smaller than their maximum."""
        changes = np.zeros(int(self.last.max(initial=-1)) + 2, np.int64)
        np.add.at(changes, self.first, self.bytes)
        np.subtract.at(changes, self.last + 1, self.bytes)
        return np.cumsum(changes)

    @property
    def pairs(self) -> int:
        """The number of ordered pairs of buffers that are live at the same time, including each
        with itself."""
        begun = np.searchsorted(np.sort(self.first), self.last, side="right")
        over = np.searchsorted(np.sort(self.last), self.first, side="left")
        return int((begun - over).sum())

    def meet(self, i: int) -> Array:
        return (self.first <= self.last[i]) & (self.first[i] <= self.last)

    def arena(self, offsets: Array) -> int:
        return int((offsets + self.bytes).max(initial=0))


def find_offsets(lives: Lives, pinned: int = 0) -> Array:
    """An offset for every buffer; deterministic.

    The first `pinned` buffers, which are live from the start, are placed at the start of the arena.
    """
    key = lives.bytes.tobytes(), lives.first.tobytes(), lives.last.tobytes()
    return cached_offsets(*key, pinned, EFFORT)


@lru_cache(maxsize=64)
def cached_offsets(size: bytes, first: bytes, last: bytes, pinned: int, effort: int) -> Array:
    """Cached, because alternatives that passes compare often have the same buffers."""
    lives = Lives(*(np.frombuffer(b, np.int64) for b in (size, first, last)))
    offsets = computed_offsets(lives, pinned, effort)
    offsets.setflags(write=False)
    return offsets


def computed_offsets(lives: Lives, pinned: int, effort: int) -> Array:
    """From the first of several orders that reaches the bound, or by a search."""
    bound = int(lives.loads.max())
    tried: list[tuple[int, Array, Array]] = []
    for order in promising_orders(lives):
        order = np.concatenate((np.arange(pinned), order[order >= pinned]))
        offsets = first_fit(order, lives)
        arena = lives.arena(offsets)
        if arena == bound:
            return offsets
        tried.append((arena, offsets, order))
    tried.sort(key=lambda attempt: attempt[0])
    arena, best, _ = tried[0]
    effort = min(effort, EFFORT_PER_BUFFER * len(best))
    if effort < WORTHWHILE * lives.pairs:
        return best
    search = OffsetSearch(lives, pinned)
    for _ in range(ROUNDS):
        for _, _, order in tried:
            better = search.repair(order.tolist(), arena, bound, effort // len(tried))
            if better is not None:
                arena, best = lives.arena(better), better
            if arena == bound:
                return best
        if arena <= bound * GOOD_ENOUGH:
            break
    return best


def promising_orders(lives: Lives) -> Iterator[Array]:
    """Orders that place difficult buffers first, by four measures of difficulty."""
    loads, size, first = lives.loads, lives.bytes, lives.first
    life = lives.last - first + 1
    busiest = [loads[i : j + 1].max() for i, j in zip(first, lives.last, strict=True)]
    yield np.lexsort((-size, -life, -np.array(busiest, np.int64)))
    peak = int(loads.argmax())
    steps_from_peak = np.maximum(0, np.maximum(first - peak, peak - lives.last))
    yield np.lexsort((-size, -life, steps_from_peak))
    yield np.lexsort((first, -size))
    yield np.lexsort((first, -size * life))


def first_fit(order: Array, lives: Lives) -> Array:
    """Place buffers in order, each in the lowest gap between those it overlaps in time.

    Graphs have tens of thousands of buffers, so the placed ones are columns of a table, sorted by
    offset, and a buffer is compared with all of them at once.
    """
    offsets = np.zeros(len(order), np.int64)
    table = np.zeros((4, 0), np.int64)
    rows = np.stack((order, lives.bytes[order], lives.first[order], lives.last[order]), axis=1)
    for i, size, first, last in rows.tolist():
        begin, until, offset, end = table
        met = (begin <= last) & (first <= until)
        floor = np.concatenate(([0], np.maximum.accumulate(end[met])))
        gaps = np.flatnonzero(floor[:-1] + size <= offset[met])
        at = int(floor[gaps[0]] if gaps.size else floor[-1])
        column = np.searchsorted(offset, at, side="right")
        table = np.insert(table, column, (first, last, at, at + size), axis=1)
        offsets[i] = at
    return offsets


class OffsetSearch:
    """Searches for an order in which first fit needs a smaller arena.

    It places the same few hundred buffers thousands of times, with few neighbours each, where lists
    are several times as fast as arrays.
    """

    def __init__(self, lives: Lives, pinned: int = 0) -> None:
        self.pinned = pinned  # buffers that stay at the head of every order
        self.bytes: list[int] = lives.bytes.tolist()
        self.met = [np.flatnonzero(lives.meet(i)).tolist() for i in range(len(self.bytes))]
        self.random = Random(0)  # seeded, so that results are reproducible

    def repair(self, order: list[int], arena: int, bound: int, effort: int) -> Array | None:
        """Offsets in an arena smaller than the given one, as small as the effort allows.

        A buffer that does not fit below the limit moves ahead of one that blocks it. A move that
        makes things worse is not undone: such detours lead out of local minima.
        """
        best: Array | None = None
        spans: dict[int, tuple[int, int]] = {}  # spans of the first buffers in the order
        while arena > bound and effort > 0:
            stuck, work = self.fill(order, spans, arena - 1)
            effort -= work + len(order)
            if stuck is not None and stuck < self.pinned:
                break
            if stuck is None:
                arena = max(end for _, end in spans.values())
                best = np.array([spans[i][0] for i in range(len(order))], np.int64)
                spans = {}
            else:
                in_its_way = [j for j in self.met[stuck] if j in spans]
                drawn = self.random.choices(in_its_way, k=DRAWS)
                position = max(self.pinned, *(order.index(j) for j in drawn))
                for i in order[position : len(spans)]:
                    del spans[i]
                order.remove(stuck)
                order.insert(position, stuck)
        return best

    def fill(
        self, order: list[int], spans: dict[int, tuple[int, int]], limit: int
    ) -> tuple[int | None, int]:
        """Continue first fit below the limit; returns the buffer that does not fit, if any, and the
        effort."""
        work = 0
        for i in order[len(spans) :]:
            size, at = self.bytes[i], 0
            work += len(self.met[i])
            for start, end in sorted([spans[j] for j in self.met[i] if j in spans]):
                if at + size <= start:
                    break
                if end > at:
                    at = end
            if at + size > limit:
                return i, work
            spans[i] = at, at + size
        return None, work
