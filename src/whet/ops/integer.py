"""Integers and truth values: conversions, logic, and where the largest element is.

Nothing here has a gradient. `add`, `sub`, `mul`, `where` and the comparisons take integers too.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Attributes, Call, DType, Node, Op, Type
from ._common import Axis, around, broadcast_shapes, over_first, require, require_axis, require_f32
from .binary import broadcast_call

CASTS = {("u8", "i32"), ("i32", "f32"), ("f32", "i32")}


class Cast(Op):
    """y = x as another type; a fraction is cut off, what does not fit saturates, NaN becomes 0"""

    name = "cast"
    differentiable = False

    class Attrs(Attributes):
        to: str = "i32"

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require((x.dtype.label, a.to) in CASTS, f"{x} does not become {a.to}")
        return Type(next(t for t in DType if t.label == a.to), x.shape)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        if a.to == "f32" or x.dtype == np.uint8:
            return x
        limits = np.iinfo(np.int32)
        whole = np.nan_to_num(np.trunc(x.astype(np.float64)), posinf=limits.max, neginf=limits.min)
        return np.clip(whole, limits.min, limits.max).astype(np.int32)

    @staticmethod
    def call(node: Node) -> Call:
        (x,) = node.ins
        kernel = f"whet_cast_{x.type.dtype.label}_{node.attrs.to}"
        return Call(kernel, (node.out, x, x.type.elements), "cast")


class Logic(Op):
    """y[i] = f(a[i], b[i]) of truth values"""

    differentiable = False

    @staticmethod
    def infer(attrs: Attributes, a: Type, b: Type) -> Type:
        require(a.dtype is b.dtype is DType.U8, f"needs u8 operands, got {a} and {b}")
        return Type(DType.U8, broadcast_shapes(a.shape, b.shape))

    @staticmethod
    def call(node: Node) -> Call:
        return broadcast_call(node, f"whet_{node.op.name}_u8", "integer")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return tuple((0, i) for i, v in enumerate(node.ins) if v.type == node.out.type)


class And(Logic):
    """y = a and b"""

    name = "and"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return (a != 0) & (b != 0)


class Or(Logic):
    """y = a or b"""

    name = "or"

    @staticmethod
    def ref(attrs: Attributes, a: Array, b: Array) -> Array:
        return (a != 0) | (b != 0)


class Not(Op):
    """y = not x"""

    name = "not"
    differentiable = False

    @staticmethod
    def infer(attrs: Attributes, x: Type) -> Type:
        require(x.dtype is DType.U8, f"needs u8, got {x}")
        return x

    @staticmethod
    def ref(attrs: Attributes, x: Array) -> Array:
        return x == 0

    @staticmethod
    def call(node: Node) -> Call:
        return Call("whet_not_u8", (node.out, *node.ins, node.out.type.elements), "integer")

    inplace = staticmethod(over_first)


class Argmax(Op):
    """y[..., 0, ...] = the first j along the axis at which x[..., j, ...] is largest"""

    name = "argmax"
    differentiable = False
    Attrs = Axis

    @staticmethod
    def infer(a: Axis, x: Type) -> Type:
        require_f32(x)
        require_axis(a, x)
        return Type(DType.I32, (*x.shape[: a.axis], 1, *x.shape[a.axis + 1 :]))

    @staticmethod
    def ref(a: Axis, x: Array) -> Array:
        return x.argmax(axis=a.axis, keepdims=True)

    @staticmethod
    def call(node: Node) -> Call:
        (x,) = node.ins
        return Call("whet_argmax_f32", (node.out, x, *around(x.shape, node.attrs.axis)), "argmax")
