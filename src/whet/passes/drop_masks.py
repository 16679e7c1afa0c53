"""Do not compute saturation bits that the backward pass does not need."""

from __future__ import annotations

from dataclasses import asdict, replace

from ..ir import Builder, Graph, Node, Value
from .rewriting import Uses, rewrite


def drop_masks(graph: Graph) -> Graph:
    """requantize {mask=True} whose bits are not read becomes requantize; likewise add_i8."""
    uses = Uses(graph)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if not getattr(node.attrs, "mask", False):
            return None
        bits = node.outs[1]
        if uses.readers.get(bits) or bits in uses.kept:
            return None
        b.emit(node.op, *node.ins, **asdict(node.attrs) | {"mask": False})
        b.nodes[-1] = replace(b.nodes[-1], outs=node.outs[:1])
        return node.outs

    return rewrite(graph, rule)
