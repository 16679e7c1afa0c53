"""Update a weight while its gradient is being made, so that the gradient never exists whole."""

from __future__ import annotations

from dataclasses import asdict

from ..ir import Builder, DType, Graph, Node, Op, Value
from ..memory.plan import lifetimes
from ..ops.conv import Conv2dDw
from ..ops.conv_i8 import Conv2dI8Dw
from ..ops.fused_update import BLOCK
from ..ops.linear import LinearDw
from ..ops.live import LinearLiveDw
from ..ops.optimizers import FUSED, FUSED_LIVE, FUSED_STEPS, FUSED_TAKES
from ..ops.settle import Settle
from ..ops.shape import TakeDx
from .rewriting import Uses, rewrite


def fuse_updates(graph: Graph) -> Graph:
    """sgd(w, conv2d_dw(dy, x), lr) becomes dw_sgd(w, dy, x, lr); other optimizers too, and Adam of
    embeddings.

    That is done where the gradient is larger than a block, and than the x it is made from: until
    the update is due, which is after the last reader of w, x is kept in its place. If the peak
    rises all the same, nothing is done. An update of whole numbers is a step and then a settling,
    and both become part of it.
    """
    uses = Uses(graph)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op in FUSED:
            return fused_float(b, node, uses)
        return fused_whole(b, node, uses) if node.op is Settle else None

    fused = rewrite(graph, rule)
    return fused if lifetimes(fused).peak[0] <= lifetimes(graph).peak[0] else graph


def fused_float(b: Builder, node: Node, uses: Uses) -> tuple[Value, ...] | None:
    dw = made_for_one(node.ins[1], uses, Conv2dDw, LinearDw, LinearLiveDw, TakeDx)
    if dw is None or not is_large(dw) or node.ins[0].type != dw.out.type:
        return None
    w, _, *rest = node.ins
    if dw.op is TakeDx:
        if node.op not in FUSED_TAKES or dw.attrs.axis != 0 or w.type.rank != 2:
            return None
        attrs = asdict(dw.attrs) | asdict(node.attrs)
        return b.emit_all(FUSED_TAKES[node.op], w, *dw.ins, *rest, **attrs)
    if dw.op is LinearLiveDw:
        if any(v.type.dtype is not DType.F32 for v in rest):
            return None
        return b.emit_all(FUSED_LIVE[node.op], w, *dw.ins, *rest, **asdict(node.attrs))
    attrs = asdict(dw.attrs) | asdict(node.attrs)
    return b.emit_all(FUSED[node.op], w, *dw.ins, *rest, **attrs)


def fused_whole(b: Builder, node: Node, uses: Uses) -> tuple[Value, ...] | None:
    """If it rounds to the nearest, with a carry of 8 bits or without one."""
    q, move, *carry = node.ins
    if node.attrs.rounding != "nearest" or any(v.type.dtype is not DType.I8 for v in (q, *carry)):
        return None
    step = made_for_one(move, uses, *FUSED_STEPS)
    dw = made_for_one(step.ins[1], uses, Conv2dI8Dw) if step is not None else None
    if step is None or dw is None or not is_large(dw) or dw.attrs.groups != 1:
        return None
    if dw.out.type.shape != q.type.shape:
        return None
    attrs = asdict(dw.attrs) | asdict(step.attrs) | asdict(node.attrs)
    return b.emit_all(FUSED_STEPS[step.op], q, *dw.ins, *step.ins[2:], *carry, **attrs)


def made_for_one(value: Value, uses: Uses, *ops: type[Op]) -> Node | None:
    """The node of these operators that makes a value, or what it is a view of, for one reader."""
    node = uses.producer.get(value)
    if node is None or uses.only_reader(value) is None:
        return None
    if node.op.view:
        return made_for_one(node.ins[0], uses, *ops)
    return node if node.op in ops else None


def is_large(dw: Node) -> bool:
    kept = dw.ins[0] if dw.op is TakeDx else dw.ins[1]
    return dw.out.type.bytes > max(4 * BLOCK, kept.type.bytes)
