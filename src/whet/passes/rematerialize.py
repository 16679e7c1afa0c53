"""Recompute values where they are needed, instead of keeping them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir import Graph, Node, Role, Value
from ..memory.plan import Lifetimes, lifetimes
from .rewriting import Uses

DEPTH = 6  # nodes recomputed for one value
EFFORT = 400_000  # total number of nodes examined


def rematerialize(
    graph: Graph, limit: int = 0, costly: bool = False, inside: bool = False
) -> Graph:
    """Recompute values in the backward pass until the peak is at most `limit`, or cannot be
    lowered.

    Only element-wise operators and the like are recomputed, unless `costly` allows layers as well.
    The inputs count if they are `inside` the arena.
    """
    attempts = EFFORT // max(1, len(graph.nodes))
    lives = lifetimes(graph, inside=inside)
    improved = True
    while improved and attempts > 0 and lives.peak[0] > limit:
        improved = False
        for candidate in _candidates(graph, lives, costly):
            attempts -= 1
            found = lifetimes(candidate, inside=inside)
            if found.peak[0] < lives.peak[0]:
                graph, lives, improved = candidate, found, True
                break
            if attempts <= 0:
                break
    return graph


def _candidates(graph: Graph, lives: Lifetimes, costly: bool) -> Iterator[Graph]:
    """Graphs with one buffer less at the peak, largest first."""
    at = lives.peak[1]
    uses = Uses(graph)
    made = [b for b in lives.buffers if b.values[0].role is not Role.INPUT]
    live = [b for b in made if b.first < at < b.last]
    for b in sorted(live, key=lambda b: -b.bytes):
        kept = {v for v in b.values if lives.storage.made[v] < at}  # later ones may overwrite them
        reader = _next_reader(graph, kept, at)
        if reader is None:
            continue
        for depth in (1, DEPTH):
            chain = _chain(graph, lives, uses, kept, reader, depth, costly)
            if chain:
                yield _recompute(graph, chain, reader)


def _next_reader(graph: Graph, kept: set[Value], at: int) -> int | None:
    """The first node after the peak that reads one of the values."""
    later = (i for i in range(at + 1, len(graph.nodes)) if kept.intersection(graph.nodes[i].ins))
    return next(later, None)


def _chain(
    graph: Graph, lives: Lifetimes, uses: Uses, kept: set[Value], reader: int, depth: int,
    costly: bool,
) -> list[Node] | None:  # fmt: skip
    """Nodes that recompute the values from what is live when they are read."""
    alive = {v for b in lives.buffers if b.last >= reader for v in b.values} - kept
    wanted = [v for n in graph.nodes[reader:] for v in n.ins if v in kept]
    index = {n: i for i, n in enumerate(graph.nodes)}
    found: set[Node] = set()
    while wanted:
        value = wanted.pop()
        node = uses.producer.get(value)
        if node is None or value in alive or node in found:
            continue
        if index[node] >= reader or (node.op.macs(node) and not costly):
            return None
        if len(found) == depth:
            continue  # its operands would be kept longer instead
        found.add(node)
        wanted += node.ins
    return sorted(found, key=index.__getitem__)


def _recompute(graph: Graph, chain: list[Node], reader: int) -> Graph:
    """Insert `chain` again before the reader; later nodes read its results."""
    taken = {v.name for v in graph.leaves} | {v.name for n in graph.nodes for v in n.outs}
    again: dict[Value, Value] = {}
    clones = []
    for node in chain:
        ins = tuple(again.get(v, v) for v in node.ins)
        for v in node.outs:
            again[v] = replace(v, name=_fresh(f"{v.name}.again", taken))
        clones.append(replace(node, ins=ins, outs=tuple(again[v] for v in node.outs)))
    rest = [replace(n, ins=tuple(again.get(v, v) for v in n.ins)) for n in graph.nodes[reader:]]
    return replace(graph, nodes=(*graph.nodes[:reader], *clones, *rest))


def _fresh(name: str, taken: set[str]) -> str:
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}_{n}"
    taken.add(candidate)
    return candidate
