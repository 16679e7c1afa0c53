"""Keep one bit per element where the backward pass only needs to know the side of a clamp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ir import Builder, Graph, Node, Value
from ..ops.bits import BitsDx, WithinBits
from .rewriting import Uses


def keep_bits(graph: Graph) -> Graph:
    """relu_dx(dy, y) becomes bits_dx(dy, bits) where nothing else keeps y for the backward pass.

    The bits are computed as soon as y exists. A y that another gradient needs as well is kept
    anyway, and its bits can be derived from it at no cost.
    """
    wanted = _worthwhile(graph)
    by_value: dict[Value, list[Node]] = {}
    for node in wanted:
        by_value.setdefault(node.ins[1], []).append(node)
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    bits: dict[Node, Value] = {}
    for node in graph.nodes:
        b.loc = node.loc
        if node in wanted:
            _, slopes = sides_of(node)
            b.emit(BitsDx, node.ins[0], bits[node], **slopes)
            b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)
        else:
            b.nodes.append(node)
        for value in node.outs:
            taken: dict[tuple[tuple[str, float], ...], Value] = {}
            for reader in by_value.get(value, ()):
                interval, _ = sides_of(reader)
                key = tuple(interval.items())
                if key not in taken:
                    taken[key] = b.emit(WithinBits, value, name=f"{value.name}.bits", **interval)
                bits[reader] = taken[key]
    return b.finish(graph.outputs)


def sides_of(node: Node) -> tuple[dict[str, Any], dict[str, Any]]:
    found = node.op.sides(node.attrs)
    assert found is not None
    return found


def _worthwhile(graph: Graph) -> set[Node]:
    """Gradient nodes of a known kind that alone keep their value beyond the loss."""
    uses = Uses(graph)
    order = {node: i for i, node in enumerate(graph.nodes)}
    made = {v: i for node, i in order.items() for v in node.outs}
    loss = max((made.get(v, -1) for v in graph.outputs), default=-1)
    last_other: dict[Value, int] = {}
    for node, i in order.items():
        for place, value in enumerate(node.ins):
            if node.op.sides(node.attrs) is None or place != 1:
                last_other[uses.root(value)] = i

    held = {uses.root(v) for v in uses.kept}  # until the end

    def alone(node: Node) -> bool:
        kept = uses.root(node.ins[1])
        needed = kept in held or last_other.get(kept, -1) > loss
        return kept in made and order[node] > loss and not needed

    return {node for node in graph.nodes if node.op.sides(node.attrs) is not None and alone(node)}
