"""RMSprop, plain or centered, with momentum or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import Array
from ..conv import Conv2dDw
from ..fused_update import Block, FusedUpdate
from ..live_update import LiveUpdate
from ..settle import Step, StepOp, real
from ..update import Moment, UpdateOp
from .record import Named, Optimizer, Options


class RmsProp(UpdateOp):
    """h = g + decay * w;  v' = alpha * v + (1-alpha) * h^2
    w' = w - lr * scale * h / (sqrt(v') + eps)

    If centered, a' = alpha * a + (1-alpha) * h, and v' - a'^2, but at least 0, is under the root.
    With momentum, m' = momentum * m + h / (...) takes the place of that quotient. Operands w, g, v,
    a if centered, m with momentum, lr; results w', v', a', m' likewise.
    """

    name = "rmsprop"
    moments = (
        Moment("square", torch="square_avg"),
        Moment("mean", torch="grad_avg", when="centered"),
        Moment("momentum", torch="momentum_buffer", when="momentum"),
    )

    class Attrs(UpdateOp.Attrs):
        alpha: float = 0.99
        eps: float = 1e-8
        momentum: float = 0.0
        centered: bool = False

    @staticmethod
    def ref(a: Attrs, w: Array, g: Array, *rest: Array) -> tuple[Array, ...]:
        (*moments, lr), kind = rest, w.dtype.type
        change, moved = change_of(a, g + kind(a.weight_decay) * w, moments)
        return w - lr * kind(a.lr_scale) * change, *moved

    @classmethod
    def numbers(cls, a: Any) -> tuple[int | float, ...]:
        # 1 - alpha in double, as for Adam. The kernel knows it is centered from its operands.
        return (a.lr_scale, a.weight_decay, 1 - a.alpha, a.eps, a.momentum)


def change_of(a: Any, h: Array, moments: Sequence[Array]) -> tuple[Array, list[Array]]:
    """What is multiplied by the learning rate, and the next moments, in the order of C."""
    kind = h.dtype.type
    square, *others = moments
    square = square + kind(1 - a.alpha) * (h * h - square)
    moved, spread = [square], square
    if a.centered:
        mean = others[0] + kind(1 - a.alpha) * (h - others[0])
        moved.append(mean)
        spread = np.maximum(square - mean * mean, 0)  # rounding can make it negative
    change = h / (np.sqrt(spread) + kind(a.eps))
    if a.momentum:
        change = kind(a.momentum) * others[-1] + change
        moved.append(change)
    return change, moved


class RmsPropStep(StepOp):
    """h = g / s + decay * q * s;  v' = alpha * v + (1-alpha) * h^2
    move = lr * lr_scale * h / (sqrt(v') + eps) / s

    Centered and with momentum as `rmsprop`.
    """

    name = "rmsprop_step"
    update = RmsProp

    class Attrs(RmsProp.Attrs, Step):
        pass

    @staticmethod
    def ref(a: Attrs, q: Array, g: Array, scale: Array, *rest: Array) -> tuple[Array, ...]:
        (*moments, lr), kind = rest, g.dtype.type
        s, r = a.sizes(q, scale)
        change, moved = change_of(a, g * r + real(q, g) * s * kind(a.weight_decay), moments)
        return change * r * (lr * kind(a.lr_scale)), *moved


class DwRmsProp(FusedUpdate):
    """w', v' = rmsprop(w, dw(dy, x), v, lr), with a and m where rmsprop has them"""

    name = "dw_rmsprop"
    update = RmsProp

    class Attrs(RmsProp.Attrs, Block, Conv2dDw.Attrs):
        pass


class LiveRmsProp(LiveUpdate):
    """v', s' = rmsprop(v, linear_live_dw(dy, x, bits), s, lr), and likewise with more moments"""

    name = "live_rmsprop"
    update = RmsProp
    Attrs = RmsProp.Attrs


def read(group: Options) -> dict[str, Any]:
    numbers = {key: float(group[key]) for key in ("alpha", "eps", "momentum")}
    return numbers | {"centered": bool(group["centered"])}


RMSPROP = Optimizer(
    RmsProp,
    RmsPropStep,
    DwRmsProp,
    LiveRmsProp,
    (Named("rmsprop", "RMSprop", momentum=True),),
    read,
)
