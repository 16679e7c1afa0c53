"""Compute at compile time what depends on nothing that changes."""

from __future__ import annotations

from collections.abc import Collection

from ..ir import Array, Builder, Graph, Node, Role, Value
from ..ir.interp import run_reference
from .rewriting import made_from, rewrite


def fold_constants(graph: Graph, changing: Collection[str]) -> Graph:
    """Nodes whose operands are constants or parameters outside `changing` become constants.

    A result larger than all its operands together (an expanded mask, say) is left to run time, so
    that folding never makes the program image grow.
    """
    known: dict[Value, Array] = {
        leaf: graph.data[leaf.name]
        for leaf in graph.leaves_of(Role.CONST, Role.PARAM)
        if leaf.role is Role.CONST or leaf.name not in changing
    }

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if not node.ins or not all(v in known for v in node.ins):
            return None
        if sum(v.type.bytes for v in node.outs) > sum(v.type.bytes for v in node.ins):
            return None
        arrays = run_reference(node, [known[v] for v in node.ins])
        folded = []
        for out, array in zip(node.outs, arrays, strict=True):
            link = made_from(node.ins[0]) if node.op.view else None
            value = b.const(array, f"{out.name}.folded", out.type.dtype, link)
            known[value] = b.data[value.name]
            folded.append(value)
        return tuple(folded)

    return rewrite(graph, rule)
