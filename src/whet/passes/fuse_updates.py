"""Update a weight while its gradient is being made, so that the gradient never exists whole."""

from __future__ import annotations

from dataclasses import asdict

from ..ir import Builder, Graph, Node, Value
from ..ops.conv import Conv2dDw
from ..ops.fused_update import BLOCK, FUSED_UPDATES
from ..ops.linear import LinearDw
from ..plan import lifetimes
from .rewriting import Uses, rewrite


def fuse_updates(graph: Graph) -> Graph:
    """sgd(w, conv2d_dw(dy, x), lr) becomes dw_sgd(w, dy, x, lr); other optimizers too.

    That is done where the gradient is larger than a block, and than the x it is made from: until
    the update is due, which is after the last reader of w, x is kept in its place. If the peak
    rises all the same, nothing is done.
    """
    uses = Uses(graph)

    def gradient_of(value: Value) -> Node | None:
        """The node that makes this gradient for one reader alone."""
        node = uses.producer.get(value)
        if node is None or uses.only_reader(value) is None:
            return None
        if node.op.view:
            return gradient_of(node.ins[0])
        if node.op not in (Conv2dDw, LinearDw):
            return None
        large = node.out.type.elements > max(BLOCK, node.ins[1].type.elements)
        return node if large else None

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        dw = gradient_of(node.ins[1]) if node.op in FUSED_UPDATES else None
        if dw is None or node.ins[0].type != dw.out.type:
            return None
        w, _, *rest = node.ins
        attrs = asdict(dw.attrs) | asdict(node.attrs)
        return b.emit_all(FUSED_UPDATES[node.op], w, *dw.ins, *rest, **attrs)

    fused = rewrite(graph, rule)
    return fused if lifetimes(fused).peak[0] <= lifetimes(graph).peak[0] else graph
