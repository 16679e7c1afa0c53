"""Stochastic gradient descent with momentum, plain or Nesterov's."""

from __future__ import annotations

from typing import Any

from ...ir import Array
from ..conv import Conv2dDw
from ..fused_update import Block, FusedUpdate
from ..live_update import LiveUpdate
from ..settle import Step, StepOp, real
from ..update import Moment, UpdateOp
from .record import Optimizer, Options
from .sgd import DAMPENING, NAMES


class SgdMomentum(UpdateOp):
    """m' = momentum * m + (g + decay * w)
    w' = w - lr * scale * (nesterov ? g + momentum * m' : m')

    In the Nesterov form g includes the weight decay too. Operands w, g, m, lr; results w', m'.
    """

    name = "sgd_momentum"
    moments = (Moment("momentum", torch="momentum_buffer"),)

    class Attrs(UpdateOp.Attrs):
        momentum: float = 0.9
        nesterov: bool = False

    @staticmethod
    def ref(a: Attrs, w: Array, g: Array, m: Array, lr: Array) -> tuple[Array, Array]:
        g = g + a.weight_decay * w
        m = a.momentum * m + g
        step = g + a.momentum * m if a.nesterov else m
        return w - lr * a.lr_scale * step, m


class MomentumStep(StepOp):
    """h = g / s + decay * q * s;  m' = momentum * m + h
    move = lr * lr_scale * (nesterov ? h + momentum * m' : m') / s
    """

    name = "momentum_step"
    update = SgdMomentum

    class Attrs(SgdMomentum.Attrs, Step):
        pass

    @staticmethod
    def ref(a: Attrs, q: Array, g: Array, scale: Array, m: Array, lr: Array) -> tuple[Array, Array]:
        s, r = a.sizes(q, scale)
        h = g * r + real(q, g) * s * g.dtype.type(a.weight_decay)
        m = m * g.dtype.type(a.momentum) + h
        step = h + m * g.dtype.type(a.momentum) if a.nesterov else m
        return step * r * (lr * g.dtype.type(a.lr_scale)), m


class DwSgdMomentum(FusedUpdate):
    """w', m' = sgd_momentum(w, dw(dy, x), m, lr)"""

    name = "dw_sgd_momentum"
    update = SgdMomentum

    class Attrs(SgdMomentum.Attrs, Block, Conv2dDw.Attrs):
        pass


class LiveSgdMomentum(LiveUpdate):
    """v', m' = sgd_momentum(v, linear_live_dw(dy, x, bits), m, lr)"""

    name = "live_sgd_momentum"
    update = SgdMomentum
    Attrs = SgdMomentum.Attrs


def read(group: Options) -> dict[str, Any] | None:
    if not group["momentum"]:
        return None
    return {"momentum": float(group["momentum"]), "nesterov": bool(group["nesterov"])}


SGD_MOMENTUM = Optimizer(
    SgdMomentum, MomentumStep, DwSgdMomentum, LiveSgdMomentum, NAMES, read, DAMPENING
)
