"""Element-wise functions of two or three values with broadcasting, and `where`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..ir import Arg, Array, Attributes, Builder, Call, DType, Field, Grads, Node, Op, Struct, Type
from ._common import (
    broadcast_shapes,
    collapse,
    d,
    padded,
    require,
    require_f32,
    same_axis,
    strides,
)
from .reduce import sum_to
from .unary import Neg


def broadcast_struct(node: Node) -> Struct:
    """How every operand is walked while the result is written row by row."""
    shape = node.out.shape
    aligned = [(1,) * (len(shape) - v.type.rank) + v.shape for v in node.ins]
    dims, steps = collapse(shape, *(strides(s) for s in aligned))
    steps += [(0,) * len(dims)] * (3 - len(steps))
    names = ("a", "b", "c")
    walks = tuple((n, padded(s)) for n, s in zip(names, steps, strict=True))
    fields: tuple[Field, ...] = (("rank", len(dims)), ("dims", padded(dims, 1)), *walks)
    return Struct("whet_broadcast_t", fields)


def broadcast_call(node: Node, kernel: str, source: str) -> Call:
    args: tuple[Arg, ...] = (node.out, *node.ins, broadcast_struct(node))
    return Call(kernel, args, source)


def number_call(node: Node, source: str) -> Call:
    """Of f32 or i32 operands; `source` has the kernel of f32."""
    label = node.ins[0].type.dtype.label
    kernel = f"whet_{node.op.name}_{label}"
    return broadcast_call(node, kernel, source if label == "f32" else "integer")


def number_type(a: Type, b: Type) -> DType:
    """f32 or i32, whichever both are."""
    require(a.dtype is b.dtype and a.dtype is not DType.U8, f"{a} and {b} are not one kind")
    return a.dtype


class Binary(Op):
    """y[i] = f(a[i], b[i])"""

    row_axis = staticmethod(same_axis)

    @staticmethod
    def infer(attrs: Attributes, a: Type, b: Type) -> Type:
        require_f32(a, b)
        return Type(DType.F32, broadcast_shapes(a.shape, b.shape))

    @staticmethod
    def call(node: Node) -> Call:
        return broadcast_call(node, f"whet_{node.op.name}_f32", node.op.name)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return tuple((0, i) for i, v in enumerate(node.ins) if v.type == node.out.type)


class Arithmetic(Binary):
    """y[i] = f(a[i], b[i]), also of integers, which wrap around"""

    @staticmethod
    def infer(attrs: Attributes, a: Type, b: Type) -> Type:
        return Type(number_type(a, b), broadcast_shapes(a.shape, b.shape))

    @staticmethod
    def call(node: Node) -> Call:
        return number_call(node, node.op.name)


class Add(Arithmetic):
    """y = a + b"""

    name = "add"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a + b

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,) = douts
        assert dy is not None
        return tuple(sum_to(b, dy, v) if w else None for v, w in zip(node.ins, wants, strict=True))

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        return ins[0] + ins[1]


class Sub(Arithmetic):
    """y = a - b"""

    name = "sub"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a - b

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (u, v) = douts, node.ins
        assert dy is not None
        du = sum_to(b, dy, u) if wants[0] else None
        dv = b.emit(Neg, sum_to(b, dy, v), name=d(v)) if wants[1] else None
        return du, dv


class Mul(Arithmetic):
    """y = a * b"""

    name = "mul"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a * b

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (u, v) = douts, node.ins
        assert dy is not None
        du = sum_to(b, b.emit(Mul, dy, v), u) if wants[0] else None
        dv = sum_to(b, b.emit(Mul, dy, u), v) if wants[1] else None
        return du, dv


class Div(Binary):
    """y = a / b"""

    name = "div"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a / b

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (u, v) = douts, node.ins
        assert dy is not None
        share = b.emit(Div, dy, v)
        du = sum_to(b, share, u) if wants[0] else None
        dv = None
        if wants[1]:
            dv = b.emit(Neg, sum_to(b, b.emit(Mul, share, node.out), v), name=d(v))
        return du, dv


class Maximum(Binary):
    """y = max(a, b)"""

    name = "maximum"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return np.maximum(a, b)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (u, v) = douts, node.ins
        assert dy is not None
        du = sum_to(b, b.emit(MaximumDa, dy, u, v), u) if wants[0] else None
        dv = sum_to(b, b.emit(MaximumDa, dy, v, u), v) if wants[1] else None
        return du, dv


class MaximumDa(Op):
    """da = a > b ? dy : a == b ? dy / 2 : 0"""

    name = "maximum_da"

    @staticmethod
    def infer(attrs: Attributes, dy: Type, a: Type, b: Type) -> Type:
        require_f32(dy, a, b)
        require(broadcast_shapes(dy.shape, a.shape, b.shape) == dy.shape, "dy is too small")
        return dy

    @staticmethod
    def ref(attrs: Attributes, dy: Array, a: Array, b: Array) -> Array:
        return np.where(a > b, dy, np.where(a == b, dy * dy.dtype.type(0.5), 0))

    @staticmethod
    def call(node: Node) -> Call:
        return broadcast_call(node, "whet_maximum_da_f32", "maximum")

    inplace = staticmethod(Binary.inplace)


class Compare(Op):
    """y[i] = a[i] <test> b[i], as 0 or 1"""

    test: ClassVar[Callable[[Array, Array], Array]]
    differentiable = False

    @staticmethod
    def infer(attrs: Attributes, a: Type, b: Type) -> Type:
        return Type(DType.U8, Arithmetic.infer(attrs, a, b).shape)

    @staticmethod
    def call(node: Node) -> Call:
        return number_call(node, "compare")


class Gt(Compare):
    """y = a > b"""

    name = "gt"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a > b


class Ge(Compare):
    """y = a >= b"""

    name = "ge"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a >= b


class Eq(Compare):
    """y = a == b"""

    name = "eq"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a == b


class Ne(Compare):
    """y = a != b"""

    name = "ne"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return a != b


class Where(Op):
    """y = c ? a : b"""

    name = "where"
    row_axis = staticmethod(same_axis)

    @staticmethod
    def infer(attrs: Attributes, c: Type, a: Type, b: Type) -> Type:
        require(c.dtype is DType.U8, f"the condition must be u8, not {c}")
        return Type(number_type(a, b), broadcast_shapes(c.shape, a.shape, b.shape))

    @staticmethod
    def ref(attrs: Attributes, c: Array, a: Array, b: Array) -> Array:
        return np.where(c != 0, a, b)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (c, u, v) = douts, node.ins
        assert dy is not None
        zero = b.const(np.float32(0), name="zero")
        du = sum_to(b, b.emit(Where, c, dy, zero), u) if wants[1] else None
        dv = sum_to(b, b.emit(Where, c, zero, dy), v) if wants[2] else None
        return None, du, dv

    @staticmethod
    def call(node: Node) -> Call:
        label = node.out.type.dtype.label
        source = "where" if label == "f32" else "integer"
        return broadcast_call(node, f"whet_where_{label}", source)
