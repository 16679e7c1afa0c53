"""Order independent nodes to reduce peak memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..ir import Graph, Node, Value
from ..memory.plan import Buffer, lifetimes
from .rewriting import Uses

EFFORT = 60_000  # total number of nodes examined, so that large graphs get fewer attempts


def schedule(graph: Graph) -> Graph:
    """Move nodes away from the peak, one at a time, as long as that lowers it.

    A buffer that is live at the peak only because its last reader comes later can be freed earlier
    if that reader moves before the peak; one that is read only later can be computed later.
    """
    before = _dependencies(graph)
    best, attempts = graph, EFFORT // max(1, len(graph.nodes))
    lives = lifetimes(best)
    bound, at = lives.peak
    improved = True
    while improved and attempts > 0:
        improved = False
        live = [b for b in lives.buffers if b.first <= at <= b.last]
        for order in _moves(best, at, sorted(live, key=lambda b: -b.bytes), before):
            attempts -= 1
            candidate = replace(best, nodes=tuple(order))
            found = lifetimes(candidate)
            if found.peak[0] < bound:
                best, lives, (bound, at), improved = candidate, found, found.peak, True
                break
            if attempts <= 0:
                break
    return best


def _dependencies(graph: Graph) -> dict[Node, set[Node]]:
    """The nodes that must precede each node: producers of its operands and, for an update, all
    other readers of what it replaces and the producers of the outputs."""
    uses = Uses(graph)
    readers: dict[Value, set[Node]] = {}
    for node in graph.nodes:
        for value in node.ins:
            readers.setdefault(uses.root(value), set()).add(node)
    outputs = {uses.producer[v] for v in graph.outputs if v in uses.producer}
    before = {n: {uses.producer[v] for v in n.ins if v in uses.producer} for n in graph.nodes}
    for leaf, nxt in graph.state:
        update = uses.producer.get(nxt)
        if update is not None:
            before[update] |= (readers.get(leaf, set()) | outputs) - {update}
            before[update] -= {n for n in before[update] if update in before[n]}
    return before


def _moves(
    graph: Graph, at: int, live: Sequence[Buffer], before: dict[Node, set[Node]]
) -> Iterator[list[Node]]:
    """Other orders in which one of the buffers at the peak is not live there."""
    nodes = list(graph.nodes)
    index = {n: i for i, n in enumerate(nodes)}
    for b in live:
        values = set(b.values)
        reads = [i for i, n in enumerate(nodes) if values.intersection(n.ins)]
        if b.last > at and b.last < len(nodes):
            early = _closure(nodes[b.last], at, index, before)
            if early is not None:
                rest = [n for n in nodes[at:] if n not in early]
                yield [*nodes[:at], *sorted(early, key=index.__getitem__), *rest]
        later = [i for i in reads if i > at]
        if b.first < at and later and later[0] == min(reads):
            yield from _delayed(nodes, b.first, later[0], before)


def _closure(
    node: Node, at: int, index: dict[Node, int], before: dict[Node, set[Node]]
) -> set[Node] | None:
    """The node and its dependencies from the peak on; None if they include the peak itself."""
    wanted, found = [node], set[Node]()
    while wanted:
        n = wanted.pop()
        if index[n] < at or n in found:
            continue
        if index[n] == at or len(found) > 8:
            return None
        found.add(n)
        wanted += before[n]
    return found


def _delayed(
    nodes: list[Node], first: int, until: int, before: dict[Node, set[Node]]
) -> Iterator[list[Node]]:
    """The node at `first` moved right before the one at `until`."""
    node = nodes[first]
    between = nodes[first + 1 : until]
    if not any(node in before[n] for n in between):
        yield [*nodes[:first], *between, node, *nodes[until:]]
