"""Drop transposes that undo each other, and takes of everything."""

from __future__ import annotations

from ..ir import Builder, Graph, Node, Role, Value
from ..ops.shape import Reshape, Take, Transpose
from .moves import Makers, in_order
from .rewriting import rewrite


def drop_moves(graph: Graph) -> Graph:
    """A transpose whose result lies in memory as an earlier value does becomes a view of that.

    So does a take with every index in order, as masks of transformers have it.
    """
    makers = Makers()

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        makers.see(b)
        if node.op is Take and takes_all(b, node):
            return b.emit_all(Reshape, node.ins[0], name=node.out.name, shape=node.out.shape)
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


def takes_all(b: Builder, node: Node) -> bool:
    """Whether it takes every element of the axis once, in order."""
    x, index = node.ins
    whole = index.type.elements == x.shape[node.attrs.axis]
    return whole and index.role is Role.CONST and in_order(b.data[index.name])
