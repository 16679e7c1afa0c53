"""Let int8 layers multiply integers in the backward pass, too."""

from __future__ import annotations

from dataclasses import asdict, replace

from ..ir import Builder, Graph, Node, Value
from ..ops.gradient_i8 import LEAST, NarrowGradient, largest
from ..ops.reduce import Sum
from .rewriting import rewrite


def narrow_gradients(graph: Graph, kind: str) -> Graph:
    """conv2d_i8_dx(dy, w) becomes conv2d_i8_dx(q, w, scale) with q, scale = narrow_gradient(dy).

    So do the gradients of weights and of depthwise layers; all products with one dy share its q. A
    dy stays in fp32 if so many products are summed that q would have less than 8 bits. Unlike other
    passes, this one does not preserve the meaning: it rounds, and is opt-in.
    """
    limits = {dy: limit for dy, limit in limits_of(graph, kind).items() if limit >= LEAST}
    narrowed: dict[Value, tuple[Value, ...]] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op.largest_sum(node) is None or node.ins[0] not in limits:
            return None
        dy, other = node.ins
        if dy not in narrowed:
            attrs = dict(kind=kind, limit=limits[dy])
            narrowed[dy] = b.emit_all(NarrowGradient, dy, name=f"{dy.name}.{kind}", **attrs)
        q, scale = narrowed[dy]
        return (b.emit(node.op, q, other, scale, **asdict(node.attrs)),)

    return rewrite(sums_first(graph), rule)


def limits_of(graph: Graph, kind: str) -> dict[Value, int]:
    """The largest |q| of every gradient for which no sum overflows."""
    limits: dict[Value, int] = {}
    for node in graph.nodes:
        if (most := node.op.largest_sum(node)) is not None:
            dy = node.ins[0]
            limits[dy] = min(limits.get(dy, largest(kind)), (2**31 - 1) // most)
    return limits


def sums_first(graph: Graph) -> Graph:
    """Move the sum of a gradient, for a bias, before all products, so that the gradient can be
    freed."""
    sums: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if node.op is Sum:
            sums.setdefault(node.ins[0], []).append(node)
    order: dict[Node, None] = {}
    for node in graph.nodes:
        if node.op.largest_sum(node) is not None:
            order.update(dict.fromkeys(sums.get(node.ins[0], ())))
        order[node] = None
    return replace(graph, nodes=tuple(order))
