"""Smooth activations of networks, and gates made of them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ..ir import Arg, Array, Attributes, Builder, Call, Grads, Node, Op, Type
from . import _exact
from ._common import d, infer_pair, require_f32, require_same, same_axis
from .unary import Unary, erf, sigmoid


class Silu(Unary):
    """y = x * sigmoid(x)"""

    name = "silu"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return x * sigmoid(x)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        s = sigmoid(x)
        return s * (1 + x * (1 - s))

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return x * _exact.sigmoid(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, x: Array) -> Array:
        s = _exact.sigmoid(x)
        return dy * s * (1 + x * (1 - s))


class Gelu(Unary):
    """y = x * Phi(x), with Phi the normal distribution function"""

    name = "gelu"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return 0.5 * x * (1 + erf(x / math.sqrt(2)))

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return 0.5 * (1 + erf(x / math.sqrt(2))) + x * density

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return x * _exact.normal(x)[0]

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, x: Array) -> Array:
        below, density = _exact.normal(x)
        return dy * (below + x * density)


_TANH_SCALE = math.sqrt(2 / math.pi)


def _share(x: Array) -> Array:
    """(1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2, as gelu_tanh.c has it."""
    f = np.float32
    return _exact.sigmoid(f(2 * _TANH_SCALE) * (x + f(0.044715) * x * x * x))


class GeluTanh(Unary):
    """y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"""

    name = "gelu_tanh"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + 0.044715 * x * x * x)))

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        t = np.tanh(_TANH_SCALE * (x + 0.044715 * x * x * x))
        inner = _TANH_SCALE * (1 + 3 * 0.044715 * x * x)
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return x * _share(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, x: Array) -> Array:
        s, f = _share(x), np.float32
        inner = f(2 * _TANH_SCALE) * (1 + f(3) * f(0.044715) * x * x)
        return dy * (s + x * s * (1 - s) * inner)


class Elu(Unary):
    """y = scale * (x > 0 ? x : alpha * (exp(input_scale * x) - 1)); selu and celu are this too"""

    name = "elu"

    class Attrs(Attributes):
        alpha: float = 1.0
        scale: float = 1.0
        input_scale: float = 1.0

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        negative = a.alpha * np.expm1(a.input_scale * np.minimum(x, 0))
        return a.scale * np.where(x > 0, x, negative)

    @staticmethod
    def slope(a: Attrs, x: Array) -> Array:
        negative = a.alpha * a.input_scale * np.exp(a.input_scale * np.minimum(x, 0))
        return a.scale * np.where(x > 0, 1.0, negative)


class Softplus(Unary):
    """y = log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold"""

    name = "softplus"

    class Attrs(Attributes):
        beta: float = 1.0
        threshold: float = math.inf

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        z = a.beta * x
        smooth = (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / a.beta
        return np.where(z > a.threshold, x, smooth)

    @staticmethod
    def slope(a: Attrs, x: Array) -> Array:
        z = a.beta * x
        return np.where(z > a.threshold, 1.0, sigmoid(z))


class Gate(Op):
    """y = f(a) * b for an activation f, which is not kept; `dx` gives the gradients of a and b."""

    activation: ClassVar[type[Unary]]
    dx: ClassVar[type[Op]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.activation.gate = cls
        cls.dx = _both(cls)

    infer = staticmethod(infer_pair)
    row_axis = staticmethod(same_axis)

    @classmethod
    def ref(cls, a: Attributes, u: Array, v: Array) -> Array:
        return np.asarray(cls.activation.ref(a, u) * v)

    @classmethod
    def exact(cls, a: Attributes, u: Array, v: Array) -> Array:
        assert cls.activation.exact is not None
        return np.asarray(cls.activation.exact(a, u) * v)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (u, v) = douts, node.ins
        assert dy is not None and issubclass(node.op, Gate)
        both = b.emit_all(node.op.dx, dy, u, v, name=d(u))
        return tuple(g if want else None for g, want in zip(both, wants, strict=True))

    @staticmethod
    def call(node: Node) -> Call:
        args: tuple[Arg, ...] = (*node.outs, *node.ins, node.out.type.elements)
        return Call(f"whet_{node.op.name}_f32", args, node.op.name.removesuffix("_dx"))

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (0, 1))


def _both(gate: type[Gate]) -> type[Op]:
    act = gate.activation

    class Dx(Op):
        __doc__ = f"da = dy * b * d{act.name}/da; db = dy * {act.name}(a)"
        name = f"{gate.name}_dx"

        @staticmethod
        def infer(a: Attributes, dy: Type, u: Type, v: Type) -> tuple[Type, Type]:
            require_f32(dy, u, v)
            require_same(dy, u, v)
            return u, v

        @staticmethod
        def ref(a: Attributes, dy: Array, u: Array, v: Array) -> tuple[Array, Array]:
            slope = act.slope(a, u).astype(dy.dtype)
            return dy * v * slope, np.asarray(dy * act.ref(a, u))

        @staticmethod
        def exact(a: Attributes, dy: Array, u: Array, v: Array) -> tuple[Array, Array]:
            assert act.exact is not None and act.exact_dx is not None
            return act.exact_dx(a, dy * v, u), dy * act.exact(a, u)

        call = staticmethod(Gate.call)

        @staticmethod
        def inplace(node: Node) -> tuple[tuple[int, int], ...]:
            return ((0, 0), (0, 1), (1, 2))

    Dx.__name__ = Dx.__qualname__ = f"{gate.__name__}Dx"
    return Dx


class Swiglu(Gate):
    """y = a * sigmoid(a) * b"""

    name = "swiglu"
    activation = Silu


class Geglu(Gate):
    """y = gelu(a) * b"""

    name = "geglu"
    activation = Gelu


class GegluTanh(Gate):
    """y = gelu_tanh(a) * b"""

    name = "geglu_tanh"
    activation = GeluTanh
