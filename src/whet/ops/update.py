"""What changes between steps: optimizers, running statistics, gradient clipping and sums."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from ..ir import Array, Attributes, Call, Node, Op, Type, f32
from ._common import require, require_f32, require_same
from ._exact import line_sum
from .settle import correction


def update_call(node: Node) -> Call:
    """Results, then operands, then the element count, then the attributes in order."""
    numbers = tuple(getattr(node.attrs, f.name) for f in fields(node.attrs))
    numbers = tuple(int(v) if isinstance(v, bool) else v for v in numbers)
    args = (*node.outs, *node.ins, node.ins[0].type.elements, *numbers)
    return Call(f"whet_{node.op.name}_f32", args, node.op.name)


def update_inplace(node: Node) -> tuple[tuple[int, int], ...]:
    """Result i replaces the operand it is the next value of."""
    places = {1: (0,), 2: (0, 2), 3: (0, 2, 3)}[len(node.outs)]
    return tuple((i, place) for i, place in enumerate(places))


class Sgd(Op):
    """w' = w - lr * scale * (g + decay * w)"""

    name = "sgd"

    class Attrs(Attributes):
        lr_scale: float = 1.0
        weight_decay: float = 0.0

    @staticmethod
    def infer(a: Attrs, w: Type, g: Type, lr: Type) -> Type:
        require_f32(w, g, lr)
        require_same(w, g)
        require(lr.shape == (), "the learning rate is one number")
        return w

    @staticmethod
    def ref(a: Attrs, w: Array, g: Array, lr: Array) -> Array:
        return w - lr * a.lr_scale * (g + a.weight_decay * w)

    call = staticmethod(update_call)
    inplace = staticmethod(update_inplace)


class SgdMomentum(Op):
    """m' = momentum * m + (g + decay * w)
    w' = w - lr * scale * (nesterov ? g + momentum * m' : m')

    In the Nesterov form g includes the weight decay too. Operands w, g, m, lr; results w', m'.
    """

    name = "sgd_momentum"

    class Attrs(Sgd.Attrs):
        momentum: float = 0.9
        nesterov: bool = False

    @staticmethod
    def infer(a: Attrs, w: Type, g: Type, m: Type, lr: Type) -> tuple[Type, Type]:
        require_f32(w, g, m, lr)
        require_same(w, g, m)
        return w, m

    @staticmethod
    def ref(a: Attrs, w: Array, g: Array, m: Array, lr: Array) -> tuple[Array, Array]:
        g = g + a.weight_decay * w
        m = a.momentum * m + g
        step = g + a.momentum * m if a.nesterov else m
        return w - lr * a.lr_scale * step, m

    call = staticmethod(update_call)
    inplace = staticmethod(update_inplace)


class Adam(Op):
    """m' = beta1*m + (1-beta1)*g;  v' = beta2*v + (1-beta2)*g^2
    w' = w - lr * scale * (m' / (1-beta1^t)) / (sqrt(v' / (1-beta2^t)) + eps)

    Weight decay is added to g, or, if decoupled (AdamW), shrinks w by 1 - lr*scale*decay first.
    Operands w, g, m, v, t (the number of this step, from 1), lr; results w', m', v'.
    """

    name = "adam"

    class Attrs(Sgd.Attrs):
        beta1: float = 0.9
        beta2: float = 0.999
        eps: float = 1e-8
        decoupled: bool = False

    @staticmethod
    def infer(a: Attrs, w: Type, g: Type, m: Type, v: Type, t: Type, lr: Type) -> tuple[Type, ...]:
        require_f32(w, g, m, v, t, lr)
        require_same(w, g, m, v)
        return w, m, v

    @staticmethod
    def ref(
        a: Attrs, w: Array, g: Array, m: Array, v: Array, t: Array, lr: Array
    ) -> tuple[Array, Array, Array]:
        rate = lr * a.lr_scale
        if a.decoupled:
            w = w * (1 - rate * a.weight_decay)
        else:
            g = g + a.weight_decay * w
        m = a.beta1 * m + (1 - a.beta1) * g
        v = a.beta2 * v + (1 - a.beta2) * g * g
        mean = m / (1 - np.float64(a.beta1) ** t)
        spread = np.sqrt(v / (1 - np.float64(a.beta2) ** t)) + a.eps
        return w - rate * mean / spread, m, v

    @staticmethod
    def exact(
        a: Attrs, w: Array, g: Array, m: Array, v: Array, t: Array, lr: Array
    ) -> tuple[Array, Array, Array]:
        f = np.float32
        rate = lr * f(a.lr_scale)
        fresh1, fresh2 = f(1 - a.beta1), f(1 - a.beta2)
        c1, c2 = (f(correction(1 - float(fresh), float(t))) for fresh in (fresh1, fresh2))
        step, scale = rate / c1, f(1) / np.sqrt(c2)
        keep = f(1) - rate * f(a.weight_decay) if a.decoupled else f(1)
        h = g + f(0 if a.decoupled else a.weight_decay) * w
        m = m + fresh1 * (h - m)
        v = v + fresh2 * (h * h - v)
        return w * keep - step * m / (np.sqrt(v) * scale + f(a.eps)), m, v

    @staticmethod
    def call(node: Node) -> Call:
        # 1 - beta, computed here in double: a kernel that gets 0.999f would find 1 - beta wrong in
        # the fifth digit.
        a = node.attrs
        fresh = (1 - a.beta1, 1 - a.beta2)
        numbers = (a.lr_scale, a.weight_decay, *fresh, a.eps, int(a.decoupled))
        args = (*node.outs, *node.ins, node.ins[0].type.elements, *numbers)
        return Call("whet_adam_f32", args, "adam")

    inplace = staticmethod(update_inplace)


class CountStep(Op):
    """t' = t + 1"""

    name = "count_step"
    differentiable = False

    @staticmethod
    def infer(a: Attributes, t: Type) -> Type:
        require_f32(t)
        return t

    @staticmethod
    def ref(a: Attributes, t: Array) -> Array:
        return t + 1

    call = staticmethod(update_call)
    inplace = staticmethod(update_inplace)


class Ema(Op):
    """s' = (1 - momentum) * s + momentum * correction * x, a running statistic"""

    name = "ema"
    differentiable = False

    class Attrs(Attributes):
        momentum: float = 0.1
        correction: float = 1.0

    @staticmethod
    def infer(a: Attrs, s: Type, x: Type) -> Type:
        require_f32(s, x)
        require_same(s, x)
        return s

    @staticmethod
    def ref(a: Attrs, s: Array, x: Array) -> Array:
        return (1 - a.momentum) * s + a.momentum * a.correction * x

    call = staticmethod(update_call)
    inplace = staticmethod(update_inplace)


class SumSquares(Op):
    """y = sum of x^2 over all elements"""

    name = "sum_squares"

    @staticmethod
    def infer(a: Attributes, x: Type) -> Type:
        require_f32(x)
        return f32()

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.asarray((x * x).sum())

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return line_sum((x * x).reshape(-1))

    call = staticmethod(update_call)


class ClipScale(Op):
    """y = min(1, limit / (sqrt(x) + 1e-6)): what to multiply gradients of squared norm x by"""

    name = "clip_scale"

    class Attrs(Attributes):
        limit: float = 1.0

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require_f32(x)
        require(x.shape == (), "the squared norm is one number")
        return x

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.minimum(1, a.limit / (np.sqrt(x) + 1e-6))

    call = staticmethod(update_call)


class Fill(Op):
    """y = value everywhere"""

    name = "fill"

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()
        value: float = 0.0

    @staticmethod
    def infer(a: Attrs) -> Type:
        return f32(*a.shape)

    @staticmethod
    def ref(a: Attrs) -> Array:
        return np.full(a.shape, a.value)

    @staticmethod
    def call(node: Node) -> Call:
        return Call("whet_fill_f32", (node.out, node.out.type.elements, node.attrs.value), "fill")
