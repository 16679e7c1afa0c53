"""Round the operands of linear layers, and of their gradients, to bfloat16."""

from __future__ import annotations

from dataclasses import asdict

from ..ir import Builder, Graph, Node, Value
from ..ops.bf16 import FEWEST
from ..ops.linear import Linear, rows
from .rewriting import rewrite


def round_products(graph: Graph) -> Graph:
    """Where there are enough rows for it to be faster.

    This is not what the layers compute, so the program asks for it.
    """

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        form = node.op.rounded
        if form is None or rows(node.ins[0].shape) < FEWEST:
            return None
        attrs = {"bias": len(node.ins) > 2} if node.op is Linear else asdict(node.attrs)
        return (b.emit(form, *node.ins, name=node.out.name, **attrs),)

    return rewrite(graph, rule)
