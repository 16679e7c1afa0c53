"""Stochastic gradient descent without momentum: it has no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from ...ir import Arg, Array, Attributes, Call, DType, Node, Op, Type, Workspace
from .._common import require
from ..conv import Conv2dDw, conv_struct
from ..conv_i8 import Conv2dI8Dw
from ..fused_update import Block, FusedUpdate, block_rows
from ..gradient_i8 import source_for
from ..live_update import LiveUpdate
from ..settle import Settle, Settling, Step, StepOp, real
from ..update import UpdateOp
from .record import Named, Optimizer, Options

A = TypeVar("A", bound=Attributes)
T = TypeVar("T")


class Sgd(UpdateOp):
    """w' = w - lr * scale * (g + decay * w)"""

    name = "sgd"

    @staticmethod
    def ref(a: UpdateOp.Attrs, w: Array, g: Array, lr: Array) -> Array:
        return w - lr * a.lr_scale * (g + a.weight_decay * w)


class SgdStep(StepOp):
    """move = lr * lr_scale * (g / s + decay * q * s) / s"""

    name = "sgd_step"
    update = Sgd

    class Attrs(Sgd.Attrs, Step):
        pass

    @staticmethod
    def ref(a: Attrs, q: Array, g: Array, scale: Array, lr: Array) -> Array:
        s, r = a.sizes(q, scale)
        h = g * r + real(q, g) * s * g.dtype.type(a.weight_decay)
        return h * r * (lr * g.dtype.type(a.lr_scale))


class DwSgd(FusedUpdate):
    """w' = sgd(w, dw(dy, x), lr)"""

    name = "dw_sgd"
    update = Sgd

    class Attrs(Sgd.Attrs, Block, Conv2dDw.Attrs):
        pass


def own(kind: type[A], a: Attributes) -> A:
    """Those of the attributes that an operator of this one has itself."""
    return kind(**{f.name: getattr(a, f.name) for f in fields(kind)})


def split(floats: bool, rest: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The scale of dy, which floats have not, and the other operands behind x."""
    return (rest[:0], rest) if floats else (rest[:1], rest[1:])


class LiveSgd(LiveUpdate):
    """v' = sgd(v, linear_live_dw(dy, x, bits), lr)"""

    name = "live_sgd"
    update = Sgd
    Attrs = Sgd.Attrs


class DwSgdSettle(Op):
    """q' = settle(q, sgd_step(q, conv2d_i8_dw(dy, x), scale, lr)), to the nearest

    Operands q, dy, x, the scale of dy if that is of integers, scale, lr and, if what rounding drops
    is carried on, the carry, i8; then there is a second result, its next value. Without groups.
    """

    name = "dw_sgd_settle"
    same_bits = True
    differentiable = False

    class Attrs(Settling, SgdStep.Attrs, Block, Conv2dI8Dw.Attrs):
        pass

    @staticmethod
    def infer(a: Attrs, q: Type, dy: Type, x: Type, *rest: Type) -> Type | tuple[Type, ...]:
        by, (scale, lr, *carry) = split(dy.dtype is DType.F32, rest)
        require(a.groups == 1, "has no groups")
        require(a.rounding == "nearest" and a.axis == 0, "rounds to the nearest, by outputs")
        require(all(t.dtype is DType.I8 for t in (q, *carry)), "needs i8")
        g = Conv2dI8Dw.infer(own(Conv2dI8Dw.Attrs, a), dy, x, *by)
        move = SgdStep.infer(own(SgdStep.Attrs, a), q, g, scale, lr)
        assert isinstance(move, Type)
        return Settle.infer(own(Settling, a), q, move, *carry)

    @staticmethod
    def ref(a: Attrs, q: Array, dy: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...]:
        by, (scale, lr, *carry) = split(dy.dtype.kind == "f", rest)
        g = Conv2dI8Dw.ref(own(Conv2dI8Dw.Attrs, a), dy, x, *by)
        move = SgdStep.ref(own(SgdStep.Attrs, a), q, g, scale, lr)
        return Settle.ref(own(Settling, a), q, move, *carry)

    @staticmethod
    def call(node: Node) -> Call:
        (_, dy, x, *rest), a = node.ins, node.attrs
        _, (scale, *_) = split(dy.type.dtype is DType.F32, rest)
        struct = conv_struct(x.type, dy.type, a.kernel, a.groups, a)
        numbers = (a.unit, a.lr_scale, a.weight_decay, Workspace(node.op.workspace(node)))
        shape: tuple[Arg, ...] = (a.zero, struct, block_rows(node), scale.type.shape[0])
        way = "nearest" if len(node.outs) == 1 else "carry"
        kernel, source, dw = (
            source_for(name, dy.type) for name in (f"dw_sgd_{way}_i8", "dw_sgd_i8", "conv2d_i8_dw")
        )
        args = (*node.outs, *node.ins, *shape, *numbers)
        return Call(f"whet_{kernel}", args, source, needs=(dw, "sgd_step", "settle"))

    workspace = staticmethod(FusedUpdate.workspace)
    macs = staticmethod(FusedUpdate.macs)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), *((1, len(node.ins) - 1) for _ in node.outs[1:]))


DAMPENING = {"dampening": "momentum with dampening"}
NAMES = (Named("sgd", "SGD", momentum=True),)


def read(group: Options) -> dict[str, Any] | None:
    return None if group["momentum"] else {}


SGD = Optimizer(Sgd, SgdStep, DwSgd, LiveSgd, NAMES, read, DAMPENING, DwSgdSettle)
