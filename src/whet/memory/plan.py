"""Decide where every value is stored: lifetimes, shared storage, offsets in one arena.

A Plan is not a Graph, so no pass can run after planning by accident.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import InternalError
from ..ir import Graph, Node, Role, Value, f32
from .packing import Lives, find_offsets

ALIGN = 16
LINE = 64  # bytes of a cache line: a vector that crosses lines takes twice the time
LARGE = 1 << 20  # arena bytes from which the padding for that does not matter
LARGE_FOR_VECTORS = 1 << 16  # the same for vector kernels, which do not run on a chip


@dataclass(frozen=True)
class Buffer:
    """A range of the arena, used by one or more values from step `first` to step `last`."""

    values: tuple[Value, ...]
    bytes: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.bytes


@dataclass(frozen=True)
class Plan:
    """Where each value of one entry point is stored.

    `home` maps a value to the leaf or output whose storage it uses, or to its buffer in the arena.
    An output in that sense is written where the caller wants it, and so is not in the arena.
    `workspace` has a value for every kernel that needs scratch memory. `copies` (to, from) are the
    updates that could not be proven safe in place; they are made at the end, in this order.
    `lower_bound` is the largest sum of bytes live at one time; no placement can need less.
    """

    graph: Graph
    home: Mapping[Value, Value | Buffer] = field(repr=False)
    workspace: Mapping[Node, Value] = field(repr=False)
    buffers: tuple[Buffer, ...] = field(repr=False)
    copies: tuple[tuple[Value, Value], ...] = field(repr=False)
    arena: int
    lower_bound: int
    peak: int  # index of the node at which the lower bound is reached


class _Storage:
    """Which values share storage: disjoint sets of values, each rooted in a leaf or a buffer."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parent: dict[Value, Value] = {}
        self.made: dict[Value, int] = {leaf: -1 for leaf in graph.leaves}
        self.reads: dict[Value, list[int]] = {}
        for i, node in enumerate(graph.nodes):
            for value in node.ins:
                self.reads.setdefault(value, []).append(i)
            for value in node.outs:
                self.made[value] = i
            if node.op.view:
                self.parent[node.out] = node.ins[0]
        for value in graph.outputs:
            self.read_at_end(value)

    @property
    def end(self) -> int:
        return len(self.graph.nodes)

    def read_at_end(self, value: Value) -> None:
        self.reads.setdefault(value, []).append(self.end)

    def root(self, value: Value) -> Value:
        while value in self.parent:
            value = self.parent[value]
        return value

    def members(self) -> dict[Value, list[Value]]:
        groups: dict[Value, list[Value]] = {}
        for value in self.made:
            groups.setdefault(self.root(value), []).append(value)
        return groups

    def results(self) -> dict[Value, Value]:
        """The outputs that the caller's memory can hold from the start, by their roots.

        That is for an entry point without updates: a step may end early, and returns a loss only.
        All values in that memory are of the output's type: C allows no other access to it.
        """
        found: dict[Value, Value] = {}
        groups = self.members() if not self.graph.state else {}
        for value in self.graph.outputs if groups else ():
            kind, root = value.type, self.root(value)
            fits = all(
                (v.type.dtype, v.type.bytes) == (kind.dtype, kind.bytes) for v in groups[root]
            )
            if root.role is Role.TEMP and fits:
                found.setdefault(root, value)
        return found

    def last_read(self, values: Sequence[Value]) -> int:
        return max((r for v in values for r in self.reads.get(v, ())), default=-1)

    def join_updates(self) -> list[tuple[Value, Value]]:
        """Compute a next value in the storage of its leaf where that is safe.

        That requires that nothing reads the old value any more and that all outputs are computed: a
        step that ends early, because its loss is not finite, must not change anything. A cache may
        change at any time.
        """
        done = max((self.made[v] for v in self.graph.outputs), default=-1)
        updates = [(leaf, nxt) for leaf, nxt in self.graph.state if self.root(nxt) is not leaf]
        computed = [
            u for u in updates if u[0].role is Role.CACHE or self.made[self.root(u[1])] > done
        ]
        copies = [u for u in updates if u not in computed]
        for _, nxt in copies:
            self.read_at_end(nxt)
        groups = self.members()
        for leaf, nxt in computed:
            root = self.root(nxt)
            if root.role is Role.TEMP and self.replaces(root, leaf, self.last_read(groups[leaf])):
                self.parent[root] = leaf
            else:
                self.read_at_end(nxt)
                copies.append((leaf, nxt))
        return self.sequence(copies)

    def replaces(self, out: Value, old: Value, last: int) -> bool:
        """Whether `out` may overwrite `old`, whose last read is at `last`."""
        i = self.made[out]
        if last != i:
            return last < i
        node = self.graph.nodes[i]
        places = [k for k, v in enumerate(node.ins) if self.root(v) is old]
        pairs = node.op.inplace(node)
        return all((node.outs.index(out), k) in pairs for k in places)

    def sequence(self, copies: list[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
        """An order in which nothing is overwritten before it is read; cycles are broken with a
        copy."""
        ordered: list[tuple[Value, Value]] = []
        while copies:
            read = {self.root(source) for _, source in copies}
            free = [c for c in copies if c[0] not in read]
            if not free:
                leaf, source = copies[0]
                spare = Value(f"{source.name}.old", source.type)
                self.made[spare] = len(self.graph.nodes)
                ordered.append((spare, source))
                copies[0] = (leaf, spare)
            ordered += free
            copies = [c for c in copies if c not in free]
        return ordered

    def join_temporaries(self) -> None:
        """Let a result overwrite an operand that is not read afterwards."""
        groups = self.members()
        last = {root: self.last_read(values) for root, values in groups.items()}
        for node in self.graph.nodes:
            for out_index, in_index in node.op.inplace(node):
                out, operand = node.outs[out_index], self.root(node.ins[in_index])
                if out in self.parent or operand.role is not Role.TEMP:
                    continue
                if self.fits(out, operand) and self.replaces(out, operand, last[operand]):
                    self.parent[out] = operand
                    last[operand] = max(last[operand], last[out])
                    break

    def fits(self, out: Value, operand: Value) -> bool:
        """Whether it pays to store `out` in the buffer of `operand`.

        It does if they are equally large. If `out` is smaller, it does if keeping the whole buffer
        costs less than having both at once: if everything computed before the last read of `out` is
        smaller still.
        """
        if out.type.bytes >= operand.type.bytes:
            return out.type.bytes == operand.type.bytes
        last = max(self.reads.get(out, ()), default=self.end)
        made = self.graph.nodes[self.made[out] + 1 : last + 1]
        return last < self.end and sum(v.type.bytes for n in made for v in n.outs) < out.type.bytes


def plan(graph: Graph, inplace: bool = True, inside: bool = False, vectors: bool = False) -> Plan:
    """Plan a graph; without `inplace`, no result overwrites an operand.

    With `inside`, the inputs have buffers at the start of the arena, in this order, for as long as
    they are read. The caller may still pass inputs from elsewhere. Before these are caches, at the
    same place in every entry point that has them. For `vectors`, buffers are
    aligned to cache lines from LARGE_FOR_VECTORS on.
    """
    need = lifetimes(graph, inplace, inside, vectors)
    placed, arena = place(need.buffers, need.pinned)
    home: dict[Value, Value | Buffer] = {
        v: b for b in placed for v in b.values if v.role in (Role.TEMP, Role.CACHE)
    }
    for value in need.storage.made:
        if value not in home:
            root = need.storage.root(value)
            home[value] = need.results.get(root, root)
    bound, peak = need.peak
    result = Plan(
        graph, home, need.workspace, tuple(placed), tuple(need.copies), arena, bound, peak
    )
    check_plan(result, alignment(bound, vectors))
    return result


@dataclass(frozen=True)
class Lifetimes:
    """The buffers that a graph needs, and their lifetimes, without offsets."""

    storage: _Storage
    buffers: list[Buffer]
    workspace: dict[Node, Value]
    copies: list[tuple[Value, Value]]
    results: dict[Value, Value]  # by their roots, the outputs that are not in the arena
    pinned: int = 0  # number of leading buffers at the start of the arena

    @functools.cached_property
    def peak(self) -> tuple[int, int]:
        """The most bytes live at once, and the index of the first node where that happens."""
        loads = lives(self.buffers).loads
        at = int(loads.argmax())
        return int(loads[at]), at


def lifetimes(
    graph: Graph, inplace: bool = True, inside: bool = False, vectors: bool = False
) -> Lifetimes:
    storage = _Storage(graph)
    copies = storage.join_updates()
    if inplace:
        storage.join_temporaries()
    members, results = storage.members(), storage.results()
    inputs = graph.leaves_of(Role.INPUT) if inside else ()
    caches = graph.leaves_of(Role.CACHE)
    buffers = [
        Buffer(tuple(members[leaf]), aligned(leaf.type.bytes, LINE), 0, storage.end)
        for leaf in caches
    ]
    buffers += [
        Buffer((leaf,), aligned(leaf.type.bytes), 0, max(0, storage.last_read(members[leaf])))
        for leaf in inputs
    ]
    for root, values in members.items():
        if root.role is Role.TEMP and root not in results:
            first = min(storage.made[v] for v in values)
            last = max(first, storage.last_read(values))
            buffers.append(Buffer(tuple(values), aligned(root.type.bytes), first, last))
    workspace: dict[Node, Value] = {}
    for i, node in enumerate(graph.nodes):
        if floats := node.op.workspace(node):
            value = Value(f"{node.out.name}.workspace", f32(floats), link=node.out.link)
            workspace[node] = value
            buffers.append(Buffer((value,), aligned(value.type.bytes), i, i))
    pinned = len(caches) + len(inputs)
    need = Lifetimes(storage, buffers, workspace, copies, results, pinned)
    if alignment(need.peak[0], vectors) == ALIGN:
        return need
    return replace(need, buffers=[replace(b, bytes=aligned(b.bytes, LINE)) for b in buffers])


def alignment(arena: int, vectors: bool = False) -> int:
    """The alignment of offsets in an arena of this size."""
    return LINE if arena >= (LARGE_FOR_VECTORS if vectors else LARGE) else ALIGN


def aligned(n: int, to: int = ALIGN) -> int:
    return -(-n // to) * to


def place(buffers: Sequence[Buffer], pinned: int = 0) -> tuple[list[Buffer], int]:
    """The buffers with their offsets, and the resulting size of the arena."""
    offsets = find_offsets(lives(buffers), pinned)
    placed = [replace(b, offset=int(at)) for b, at in zip(buffers, offsets, strict=True)]
    arena = max((b.end for b in placed), default=0)
    return sorted(placed, key=lambda b: (b.first, b.offset)), arena


def lives(buffers: Sequence[Buffer]) -> Lives:
    return Lives(
        *np.array([(b.bytes, b.first, b.last) for b in buffers], np.int64).reshape(-1, 3).T
    )


def check_plan(plan: Plan, align: int = ALIGN) -> None:
    """Verify that no two live buffers overlap and that all are inside the arena."""
    buffers = sorted(plan.buffers, key=lambda b: b.first)
    last, offset, end = np.array([(b.last, b.offset, b.end) for b in buffers]).reshape(-1, 3).T
    for i, b in enumerate(buffers):
        overlap = (last[:i] >= b.first) & (b.offset < end[:i]) & (offset[:i] < b.end)
        if overlap.any():
            other = buffers[int(overlap.argmax())]
            raise InternalError(f"{b.values[0]} and {other.values[0]} overlap in the arena")
        if b.offset % align or b.end > plan.arena:
            raise InternalError(f"{b.values[0]} is misaligned or outside the arena")
    if plan.arena < plan.lower_bound:
        raise InternalError(f"arena {plan.arena} is below its lower bound {plan.lower_bound}")
