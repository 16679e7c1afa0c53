"""Drop transposes that undo each other."""

from __future__ import annotations

from ..ir import Builder, Graph, Node, Value
from ..ops.shape import Reshape, Transpose
from .moves import Makers, in_order
from .rewriting import rewrite


def drop_moves(graph: Graph) -> Graph:
    """A transpose whose result lies in memory as an earlier value does becomes a view of that."""
    makers = Makers()

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        makers.see(b)
        if node.op is not Transpose:
            return None
        for source, found in makers.sources(node.ins[0]):
            same = source.type.elements == node.out.type.elements
            if same and in_order(found.transpose(node.attrs.perm)):
                if source.shape == node.out.shape:
                    return (source,)
                return b.emit_all(Reshape, source, name=node.out.name, shape=node.out.shape)
        return None

    return rewrite(graph, rule)
