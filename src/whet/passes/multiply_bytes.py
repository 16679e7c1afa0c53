"""Multiply integers where a linear layer reads a frozen weight that is stored in few bits."""

from __future__ import annotations

from ..ir import Builder, Graph, Node, Value
from ..ops.dots import LinearDots, QuantizeRows
from .rewriting import rewrite


def multiply_bytes(graph: Graph) -> Graph:
    """Rows of x are rounded to int8, once for all layers that read x.

    This is not what the float layer computes, so the program asks for it. Gradients stay those of
    the layer: the pass runs behind differentiation, and what computes them is no `linear_stored`.
    """
    rounded: dict[Value, tuple[Value, ...]] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if not LinearDots.fits(node):
            return None
        x = node.ins[0]
        if x not in rounded:
            rounded[x] = b.emit_all(QuantizeRows, x, name=f"{x.name}.bytes")
        return (LinearDots.emit(b, node, rounded[x]),)

    return rewrite(graph, rule)
