"""Update each parameter as soon as its gradient exists."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Graph, Node
from ..ops.settle import StepOp
from .rewriting import Uses


def reorder(graph: Graph) -> Graph:
    """Move every update right after its last operand, so that the gradient can be freed at once.

    An update stays after the last reader of the value it replaces, so that it can run in place, and
    after the outputs: a step whose loss is not finite must not change anything.
    """
    uses = Uses(graph)
    leaf_of = {nxt: leaf for leaf, nxt in graph.state}
    updates: set[Node] = set()
    for node in reversed(graph.nodes):
        readers = {r for v in node.outs for r in uses.readers.get(v, ())}
        own = all(v in leaf_of for v in node.outs) or (issubclass(node.op, StepOp) and readers)
        if own and readers <= updates:
            updates.add(node)
    others = [n for n in graph.nodes if n not in updates]
    made = {v: i for i, n in enumerate(others) for v in n.outs}
    last_read = {uses.root(v): i for i, n in enumerate(others) for v in n.ins}
    done = max((made.get(v, -1) for v in graph.outputs), default=-1)

    behind: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node in updates:
            free = [last_read.get(leaf_of[v], -1) for v in node.outs if v in leaf_of]
            at = max(done, *free, *(made.get(v, -1) for v in node.ins))
            made.update((v, at) for v in node.outs)
            behind.setdefault(at, []).append(node)
    order = behind.get(-1, [])
    for i, node in enumerate(others):
        order += [node, *behind.get(i, ())]
    return replace(graph, nodes=tuple(order))
