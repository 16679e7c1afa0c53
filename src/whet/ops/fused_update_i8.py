"""Gradients of int8 weights that are spent as they are made, as those of floats are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

from ..ir import Arg, Array, Attributes, Call, DType, Node, Op, Type, Workspace
from ._common import require
from .conv import conv_struct
from .conv_i8 import Conv2dI8Dw
from .fused_update import Block, FusedUpdate, block_rows
from .settle import Settle, Settling, SgdStep, Step

A = TypeVar("A", bound=Attributes)


def own(kind: type[A], a: Attributes) -> A:
    """Those of the attributes that an operator of this one has itself."""
    return kind(**{f.name: getattr(a, f.name) for f in fields(kind)})


class DwSgdSettle(Op):
    """q' = settle(q, sgd_step(q, conv2d_i8_dw(dy, x), scale, lr)), to the nearest

    Operands q, dy, x, scale, lr and, if what rounding drops is carried on, the carry, i8; then
    there is a second result, its next value. Without groups.
    """

    name = "dw_sgd_settle"
    differentiable = False

    @dataclass(frozen=True)
    class Attrs(Settling, Step, Block, Conv2dI8Dw.Attrs):
        pass

    @staticmethod
    def infer(
        a: Attrs, q: Type, dy: Type, x: Type, scale: Type, lr: Type, carry: Type | None = None
    ) -> Type | tuple[Type, ...]:
        require(a.groups == 1, "has no groups")
        require(a.rounding == "nearest" and a.axis == 0, "rounds to the nearest, by outputs")
        require(q.dtype is DType.I8 and (carry is None or carry.dtype is DType.I8), "needs i8")
        g = Conv2dI8Dw.infer(own(Conv2dI8Dw.Attrs, a), dy, x)
        move = SgdStep.infer(own(Step, a), q, g, scale, lr)
        assert isinstance(move, Type)
        return Settle.infer(own(Settling, a), q, move, carry)

    @staticmethod
    def ref(
        a: Attrs, q: Array, dy: Array, x: Array, scale: Array, lr: Array, carry: Array | None = None
    ) -> Array | tuple[Array, ...]:
        g = Conv2dI8Dw.ref(own(Conv2dI8Dw.Attrs, a), dy, x)
        move = SgdStep.ref(own(Step, a), q, g, scale, lr)
        return Settle.ref(own(Settling, a), q, move, carry)

    @staticmethod
    def call(node: Node) -> Call:
        (_, dy, x, scale, *_), a = node.ins, node.attrs
        struct = conv_struct(x.type, dy.type, a.kernel, a.groups, a)
        numbers = (a.unit, a.lr_scale, a.weight_decay, Workspace(node.op.workspace(node)))
        shape: tuple[Arg, ...] = (a.zero, struct, block_rows(node), scale.type.shape[0])
        way = "nearest" if len(node.outs) == 1 else "carry"
        needs = ("conv2d_i8_dw", "sgd_step", "settle")
        args = (*node.outs, *node.ins, *shape, *numbers)
        return Call(f"whet_dw_sgd_{way}_i8", args, "dw_sgd_i8", needs=needs)

    workspace = staticmethod(FusedUpdate.workspace)
    macs = staticmethod(FusedUpdate.macs)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), *((1, 5) for _ in node.outs[1:]))
