"""Find offsets in one arena for buffers whose lifetimes are known.

First fit in a good order nearly always needs no more than the bytes alive at the busiest step,
and less is impossible. Where it does need more, a search repairs the orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

import numpy as np

from ..ir import Array

# How often the search looks at a pair of buffers: some 0.1 microseconds each.
EFFORT, EFFORT_PER_BUFFER = 5_000_000, 50_000
DRAWS = 4  # of which the latest in the order counts: small steps get further than large ones
ROUNDS, GOOD_ENOUGH = 6, 1.01  # as often again while the arena is not within 1 % of its bound
WORTHWHILE = 10  # placements; with effort left for fewer, the search would find nothing


@dataclass(frozen=True, eq=False)
class Lives:
    """The bytes of every buffer and the steps, both included, between which it is alive."""

    bytes: Array
    first: Array
    last: Array

    @cached_property
    def loads(self) -> Array:
        """The bytes alive at every step: no arena can be smaller than the largest of them."""
        changes = np.zeros(int(self.last.max(initial=-1)) + 2, np.int64)
        np.add.at(changes, self.first, self.bytes)
        np.subtract.at(changes, self.last + 1, self.bytes)
        return np.cumsum(changes)

    @property
    def pairs(self) -> int:
        """How many ordered pairs of buffers meet, each with itself included."""
        begun = np.searchsorted(np.sort(self.first), self.last, side="right")
        over = np.searchsorted(np.sort(self.last), self.first, side="left")
        return int((begun - over).sum())

    def meet(self, i: int) -> Array:
        return (self.first <= self.last[i]) & (self.first[i] <= self.last)

    def arena(self, offsets: Array) -> int:
        return int((offsets + self.bytes).max(initial=0))


def find_offsets(lives: Lives, pinned: int = 0) -> Array:
    """An offset for every buffer; the same for the same lives, always.

    The first `pinned` of them, alive from the beginning, lie at the beginning of the arena.
    """
    key = lives.bytes.tobytes(), lives.first.tobytes(), lives.last.tobytes()
    return cached_offsets(*key, pinned, EFFORT)


@lru_cache(maxsize=64)
def cached_offsets(size: bytes, first: bytes, last: bytes, pinned: int, effort: int) -> Array:
    """Passes that are weighed against each other often leave the same buffers."""
    lives = Lives(*(np.frombuffer(b, np.int64) for b in (size, first, last)))
    offsets = computed_offsets(lives, pinned, effort)
    offsets.setflags(write=False)
    return offsets


def computed_offsets(lives: Lives, pinned: int, effort: int) -> Array:
    """By the first of some orders that needs no more than the bound, or by a search."""
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
    search = Search(lives, pinned)
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
    """What is hard to place comes first, while there is still room; four views of what is hard."""
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
    """One after the other, each in the lowest gap between those it meets.

    Graphs have tens of thousands of buffers, so those placed are columns of a table, sorted by
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


class Search:
    """Looks for an order in which first fit needs a smaller arena.

    It places the same few hundred buffers thousands of times, with few neighbours each, where
    lists are several times as fast as arrays.
    """

    def __init__(self, lives: Lives, pinned: int = 0) -> None:
        self.pinned = pinned  # buffers at the head of every order, which stay there
        self.bytes: list[int] = lives.bytes.tolist()
        self.met = [np.flatnonzero(lives.meet(i)).tolist() for i in range(len(self.bytes))]
        self.random = Random(0)  # seeded: a program must come out the same every time

    def repair(self, order: list[int], arena: int, bound: int, effort: int) -> Array | None:
        """Offsets in an arena smaller than the given one, as small as the effort allows.

        A buffer that does not fit below the limit moves ahead of one of those in its way. There is
        no turning back when that makes things worse: such detours lead out of dead ends.
        """
        best: Array | None = None
        spans: dict[int, tuple[int, int]] = {}  # of the first buffers in the order
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
        """Go on with first fit below the limit: who does not fit, if any, and the work it took."""
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
