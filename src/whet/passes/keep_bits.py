"""Keep one bit per element where the backward pass only needs to know the side of a clamp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..ir import Builder, Graph, Node, Op, Value
from ..ops import unary as u
from ..ops.bits import BitsDx, WithinBits
from .rewriting import Uses

Sides = tuple[dict[str, Any], dict[str, Any]]

# The interval that a gradient operator tests its kept value for, and its slopes inside and outside.
SIDES: dict[type[Op], Callable[[Any], Sides]] = {
    u.Relu.dx: lambda a: ({}, {}),
    u.Hardtanh.dx: lambda a: ({"low": a.low, "high": a.high}, {}),
    u.Clamp.dx: lambda a: ({"low": a.low, "high": a.high, "closed": True}, {}),
    u.LeakyRelu.dx: lambda a: ({}, {"outside": a.negative_slope}),
    u.Hardsigmoid.dx: lambda a: ({"low": 0.0, "high": 1.0}, {"inside": 1 / 6}),
}


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
            _, slopes = SIDES[node.op](node.attrs)
            b.emit(BitsDx, node.ins[0], bits[node], **slopes)
            b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)
        else:
            b.nodes.append(node)
        for value in node.outs:
            taken: dict[tuple[tuple[str, float], ...], Value] = {}
            for reader in by_value.get(value, ()):
                interval, _ = SIDES[reader.op](reader.attrs)
                key = tuple(interval.items())
                if key not in taken:
                    taken[key] = b.emit(WithinBits, value, name=f"{value.name}.bits", **interval)
                bits[reader] = taken[key]
    return b.finish(graph.outputs)


def _worthwhile(graph: Graph) -> set[Node]:
    """Gradient nodes of a known kind that alone keep their value beyond the loss."""
    uses = Uses(graph)
    order = {node: i for i, node in enumerate(graph.nodes)}
    made = {v: i for node, i in order.items() for v in node.outs}
    loss = max((made.get(v, -1) for v in graph.outputs), default=-1)
    last_other: dict[Value, int] = {}
    for node, i in order.items():
        for place, value in enumerate(node.ins):
            if node.op not in SIDES or place != 1:
                last_other[uses.root(value)] = i

    held = {uses.root(v) for v in uses.kept}  # until the end

    def alone(node: Node) -> bool:
        kept = uses.root(node.ins[1])
        needed = kept in held or last_other.get(kept, -1) > loss
        return kept in made and order[node] > loss and not needed

    return {node for node in graph.nodes if node.op in SIDES and alone(node)}
