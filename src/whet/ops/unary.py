"""Element-wise functions of one value, each with its derivative operator `<name>_dx`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from ..ir import Array, Attributes, Builder, Call, Grads, Node, Op, Sides
from . import _exact
from ._common import d, infer_float, infer_pair, same_axis

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(x.dtype)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


class Unary(Op):
    """y[i] = f(x[i]). A subclass gives `ref` and `slope`, the derivative dy/dx.

    `keeps` says what the slope is a function of: the operand "x" or the result "y". The backward
    pass keeps just that. `exact_dx` and `sides_dx` are the derivative's `exact` and `sides`.
    """

    keeps: ClassVar[str] = "x"
    slope: ClassVar[Callable[..., Array]]
    exact_dx: ClassVar[Callable[..., Array] | None] = None
    dx: ClassVar[type[Op]]
    gate: ClassVar[type[Op] | None] = None  # f(a) * b as one operator; see ops/activation.py

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "slope" in cls.__dict__:
            cls.dx = _derivative(cls)

    @staticmethod
    def sides_dx(a: Any) -> Sides | None:
        return None

    infer = staticmethod(infer_float)
    row_axis = staticmethod(same_axis)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,) = douts
        assert dy is not None and issubclass(node.op, Unary)
        (x,) = node.ins
        kept = x if node.op.keeps == "x" else node.out
        attrs = {f.name: getattr(node.attrs, f.name) for f in fields(node.attrs)}
        return (b.emit(node.op.dx, dy, kept, name=d(x), **attrs),)

    @staticmethod
    def call(node: Node) -> Call:
        numbers = (getattr(node.attrs, f.name) for f in fields(node.attrs))
        args = (node.out, *node.ins, node.out.type.elements, *numbers)
        family = node.op.name.removesuffix("_dx")
        return Call(f"whet_{node.op.name}_f32", args, family)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return tuple((0, i) for i in range(len(node.ins)))


def _derivative(forward: type[Unary]) -> type[Op]:
    class Dx(Op):
        __doc__ = f"dx = dy * d{forward.name}/dx, from {forward.keeps}"
        name = f"{forward.name}_dx"
        Attrs = forward.Attrs

        infer = staticmethod(infer_pair)

        @staticmethod
        def ref(a: Attributes, dy: Array, kept: Array) -> Array:
            slope = forward.slope(a, kept)
            if slope.dtype == bool:  # 0 is 0 then, whatever the sign of dy
                return np.where(slope, dy, 0)
            return dy * slope.astype(dy.dtype)

        exact = forward.exact_dx
        sides = staticmethod(forward.sides_dx)
        call = staticmethod(Unary.call)
        inplace = staticmethod(Unary.inplace)

    Dx.__name__ = Dx.__qualname__ = f"{forward.__name__}Dx"
    return Dx


class Relu(Unary):
    """y = max(x, 0)"""

    name = "relu"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.maximum(x, 0)

    @staticmethod
    def limits(a: Any) -> tuple[float, float]:
        return 0.0, math.inf

    @staticmethod
    def sides_dx(a: Any) -> Sides:
        return {}, {}

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return y > 0


class LeakyRelu(Unary):
    """y = x > 0 ? x : slope * x"""

    name = "leaky_relu"

    class Attrs(Attributes):
        negative_slope: float = 0.01

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.where(x > 0, x, a.negative_slope * x)

    @staticmethod
    def sides_dx(a: Any) -> Sides:
        return {}, {"outside": a.negative_slope}

    @staticmethod
    def slope(a: Attrs, x: Array) -> Array:
        return np.where(x > 0, 1.0, a.negative_slope)


class Hardtanh(Unary):
    """y = min(max(x, low), high); relu6 is hardtanh(0, 6). The slope at the corners is 0."""

    name = "hardtanh"
    keeps = "y"

    class Attrs(Attributes):
        low: float = -1.0
        high: float = 1.0

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.clip(x, a.low, a.high)

    @staticmethod
    def limits(a: Any) -> tuple[float, float]:
        return a.low, a.high

    @staticmethod
    def sides_dx(a: Any) -> Sides:
        return {"low": a.low, "high": a.high}, {}

    @staticmethod
    def slope(a: Attrs, y: Array) -> Array:
        return (y > a.low) & (y < a.high)


class Clamp(Unary):
    """y = min(max(x, low), high). The slope at the corners is 1, unlike hardtanh's."""

    name = "clamp"

    class Attrs(Attributes):
        low: float = -math.inf
        high: float = math.inf

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.minimum(np.maximum(x, a.low), a.high)

    @staticmethod
    def limits(a: Any) -> tuple[float, float]:
        return a.low, a.high

    @staticmethod
    def sides_dx(a: Any) -> Sides:
        return {"low": a.low, "high": a.high, "closed": True}, {}

    @staticmethod
    def slope(a: Attrs, x: Array) -> Array:
        return (x >= a.low) & (x <= a.high)


class Hardsigmoid(Unary):
    """y = min(max(x / 6 + 1/2, 0), 1)"""

    name = "hardsigmoid"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.clip(x / 6 + 0.5, 0, 1)

    @staticmethod
    def sides_dx(a: Any) -> Sides:
        return {"low": 0.0, "high": 1.0}, {"inside": 1 / 6}

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return np.where((y > 0) & (y < 1), y.dtype.type(1) / 6, 0)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, y: Array) -> Array:
        return np.where((y > 0) & (y < 1), dy / 6, 0)


class Hardswish(Unary):
    """y = x * min(max(x / 6 + 1/2, 0), 1)"""

    name = "hardswish"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return x * np.clip(x / 6 + 0.5, 0, 1)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        return np.where(x <= -3, 0, np.where(x >= 3, 1, x / 3 + 0.5))


class Sigmoid(Unary):
    """y = 1 / (1 + exp(-x))"""

    name = "sigmoid"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return sigmoid(x)

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return y * (1 - y)

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return _exact.sigmoid(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, y: Array) -> Array:
        return dy * y * (1 - y)


class Tanh(Unary):
    """y = tanh(x)"""

    name = "tanh"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.tanh(x)

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return 1 - y * y

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return _exact.tanh(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, y: Array) -> Array:
        return dy * (1 - y * y)


class Huber(Unary):
    """y = |x| < delta ? x^2 / 2 : delta * (|x| - delta / 2)"""

    name = "huber"

    class Attrs(Attributes):
        delta: float = 1.0

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        size = np.abs(x)
        return np.where(size < a.delta, 0.5 * x * x, a.delta * (size - 0.5 * a.delta))

    @staticmethod
    def slope(a: Attrs, x: Array) -> Array:
        return np.clip(x, -a.delta, a.delta)


class Exp(Unary):
    """y = exp(x)"""

    name = "exp"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.exp(x)

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return y

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return _exact.exp(x)


class Log(Unary):
    """y = log(x)"""

    name = "log"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.log(x)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        return 1 / x

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return _exact.log(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, x: Array) -> Array:
        return dy / x


class Sqrt(Unary):
    """y = sqrt(x)"""

    name = "sqrt"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.sqrt(x)

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return 0.5 / y

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, y: Array) -> Array:
        return 0.5 * dy / y


class Rsqrt(Unary):
    """y = 1 / sqrt(x)"""

    name = "rsqrt"
    keeps = "y"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return 1 / np.sqrt(x)

    @staticmethod
    def slope(a: Attributes, y: Array) -> Array:
        return -0.5 * y * y * y

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, y: Array) -> Array:
        return -0.5 * dy * y * y * y


class Abs(Unary):
    """y = |x|; the slope at 0 is 0"""

    name = "abs"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.abs(x)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        return np.sign(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, x: Array) -> Array:
        return np.where(x > 0, dy, np.where(x < 0, -dy, 0))


class Sin(Unary):
    """y = sin(x)"""

    name = "sin"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.sin(x)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        return np.cos(x)


class Cos(Unary):
    """y = cos(x)"""

    name = "cos"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.cos(x)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        return -np.sin(x)


class Erf(Unary):
    """y = 2/sqrt(pi) * integral of exp(-t^2) from 0 to x"""

    name = "erf"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return erf(x)

    @staticmethod
    def slope(a: Attributes, x: Array) -> Array:
        return 2 / math.sqrt(math.pi) * np.exp(-x * x)

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return _exact.erf(x)

    @staticmethod
    def exact_dx(a: Attributes, dy: Array, x: Array) -> Array:
        return dy * np.float32(1.12837917) * _exact.exp(-x * x)


class Pow(Unary):
    """y = x ^ exponent, for a constant exponent"""

    name = "pow"

    class Attrs(Attributes):
        exponent: float = 2.0

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.power(x, a.exponent)

    @staticmethod
    def slope(a: Attrs, x: Array) -> Array:
        if a.exponent == 0:
            return np.zeros_like(x)
        return a.exponent * np.power(x, a.exponent - 1)


class Floor(Unary):
    """y = the largest whole number that is not above x; flat, so it passes no gradient"""

    name = "floor"
    differentiable = False
    vjp = staticmethod(Op.vjp)

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.floor(x)


class Neg(Unary):
    """y = -x"""

    name = "neg"

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return -x

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        return (b.emit(Neg, douts[0], name=d(node.ins[0])),)
