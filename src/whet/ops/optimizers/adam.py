"""Adam and AdamW, which differ in what weight decay does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Array
from .._bf16 import dithered, widened
from ..conv import Conv2dDw
from ..fused_update import Block, FusedUpdate
from ..live_update import LiveUpdate
from ..settle import Step, StepOp, real
from ..shape import TakeDx
from ..take_update import TakeUpdate
from ..update import Moment, UpdateOp
from .record import Named, Optimizer, Options


class Adam(UpdateOp):
    """m' = beta1*m + (1-beta1)*g;  v' = beta2*v + (1-beta2)*g^2
    w' = w - lr * scale * (m' / (1-beta1^t)) / (sqrt(v' / (1-beta2^t)) + eps)

    Weight decay is added to g, or, if decoupled (AdamW), shrinks w by 1 - lr*scale*decay first.
    Operands w, g, m, v, t (the number of this step, from 1), lr; results w', m', v'. `narrow`
    keeps m and v in bf16, dithered: v changes by less than half of its last bit, and would not.
    """

    name = "adam"
    moments = (Moment("mean", torch="exp_avg"), Moment("square", torch="exp_avg_sq"))
    counts = True

    class Attrs(UpdateOp.Attrs):
        beta1: float = 0.9
        beta2: float = 0.999
        eps: float = 1e-8
        decoupled: bool = False
        narrow: bool = False

    @staticmethod
    def ref(
        a: Attrs, w: Array, g: Array, m: Array, v: Array, t: Array, lr: Array
    ) -> tuple[Array, Array, Array]:
        m, v = (widened(x) if a.narrow else x for x in (m, v))
        rate = lr * a.lr_scale
        if a.decoupled:
            w = w * (1 - rate * a.weight_decay)
        else:
            g = g + a.weight_decay * w
        m = a.beta1 * m + (1 - a.beta1) * g
        v = a.beta2 * v + (1 - a.beta2) * g * g
        mean = m / (1 - np.float64(a.beta1) ** t)
        spread = np.sqrt(v / (1 - np.float64(a.beta2) ** t)) + a.eps
        return (w - rate * mean / spread, *stored(a, t, m, v))

    @staticmethod
    def exact(
        a: Attrs, w: Array, g: Array, m: Array, v: Array, t: Array, lr: Array
    ) -> tuple[Array, Array, Array]:
        f = np.float32
        m, v = (widened(x) if a.narrow else x for x in (m, v))
        rate = lr * f(a.lr_scale)
        fresh1, fresh2 = f(1 - a.beta1), f(1 - a.beta2)
        c1, c2 = (f(correction(1 - float(fresh), float(t))) for fresh in (fresh1, fresh2))
        step, scale = rate / c1, f(1) / np.sqrt(c2)
        keep = f(1) - rate * f(a.weight_decay) if a.decoupled else f(1)
        h = g + f(0 if a.decoupled else a.weight_decay) * w
        m = m + fresh1 * (h - m)
        v = v + fresh2 * (h * h - v)
        return (w * keep - step * m / (np.sqrt(v) * scale + f(a.eps)), *stored(a, t, m, v))

    @classmethod
    def sizes(cls, a: Any, elements: int) -> tuple[int, ...]:
        return (elements, 0) if a.narrow else (elements,)

    @classmethod
    def numbers(cls, a: Any) -> tuple[int | float, ...]:
        # 1 - beta, computed here in double: a kernel that gets 0.999f would find 1 - beta wrong in
        # the fifth digit.
        fresh = (1 - a.beta1, 1 - a.beta2)
        return (a.lr_scale, a.weight_decay, *fresh, a.eps, int(a.decoupled))


class AdamStep(StepOp):
    """h = g / s + decay * q * s;  m' = m + (1-beta1) * (h - m);  v' = v + (1-beta2) * (h^2 - v)
    move = lr * lr_scale * (m' / (1-beta1^t) / (sqrt(v' / (1-beta2^t)) + eps)) / s

    If decoupled (AdamW), h = g / s and the move has lr * lr_scale * decay * q on top. Operands q,
    g, scale, m, v, t (the number of this step, from 1), lr; results move, m', v'.
    """

    name = "adam_step"
    update = Adam

    class Attrs(Adam.Attrs, Step):
        pass

    @staticmethod
    def ref(
        a: Attrs, q: Array, g: Array, scale: Array, m: Array, v: Array, t: Array, lr: Array
    ) -> tuple[Array, Array, Array]:
        f = g.dtype.type
        s, r = a.sizes(q, scale)
        rate = lr * f(a.lr_scale)
        h = g * r
        if not a.decoupled:
            h = h + real(q, g) * s * f(a.weight_decay)
        m = m + f(1 - a.beta1) * (h - m)
        v = v + f(1 - a.beta2) * (h * h - v)
        mean = m * f(1 / correction(1 - float(f(1 - a.beta1)), float(t)))
        spread = np.sqrt(v * f(1 / correction(1 - float(f(1 - a.beta2)), float(t)))) + f(a.eps)
        move = mean / spread * r * rate
        if a.decoupled:
            move = move + real(q, g) * (rate * f(a.weight_decay))
        return move, m, v


class DwAdam(FusedUpdate):
    """w', m', v' = adam(w, dw(dy, x), m, v, t, lr)"""

    name = "dw_adam"
    update = Adam

    class Attrs(Adam.Attrs, Block, Conv2dDw.Attrs):
        pass


def stored(a: Any, t: Array, m: Array, v: Array) -> tuple[Array, Array]:
    return (dithered(m, float(t)), dithered(v, float(t))) if a.narrow else (m, v)


def correction(beta: float, t: float) -> float:
    """1 - beta^t by repeated squaring in double, so that it has the same bits everywhere."""
    power, base, n = 1.0, float(beta), int(t)
    while n > 0:
        if n & 1:
            power *= base
        base *= base
        n >>= 1
    return 1.0 - power


class LiveAdam(LiveUpdate):
    """v', m', s' = adam(v, linear_live_dw(dy, x, bits), m, s, t, lr)"""

    name = "live_adam"
    update = Adam
    Attrs = Adam.Attrs


class TakeAdam(TakeUpdate):
    """w', m', v' = adam(w, take_dx(dy, index), m, v, t, lr)"""

    name = "take_adam"
    update = Adam

    class Attrs(Adam.Attrs, TakeDx.Attrs):
        pass


def read(group: Options) -> dict[str, Any]:
    beta1, beta2 = group["betas"]
    attrs = {"beta1": float(beta1), "beta2": float(beta2), "eps": float(group["eps"])}
    attrs |= {"decoupled": bool(group.get("decoupled_weight_decay"))}
    return attrs | ({"narrow": True} if group.get("moments") else {})


ADAM = Optimizer(
    Adam, AdamStep, DwAdam, LiveAdam, (Named("adam", "Adam"), Named("adamw", "AdamW")), read,
    refused={"amsgrad": "AMSGrad"}, take=TakeAdam,
)  # fmt: skip
