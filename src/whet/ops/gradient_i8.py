"""Gradients as integers: q * scale, with one scale for all of a tensor.

The scale is a power of two, so that dividing by it loses nothing but what rounding does. The limit
of |q| is chosen so that no int32 sum of products with q can overflow: such sums are exact, and
their order does not matter. What is computed from a gradient that is not finite is NaN.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Attributes, Call, DType, Node, Op, Type
from ._common import require, require_f32

KINDS = {"int16": DType.I16, "int8": DType.I8}
LEAST = 127  # limit: fewer numbers than those of a byte are none
SMALLEST = 2.0**-100  # scale: numbers that a processor may take for 0 are rounded to it


def largest(kind: str) -> int:
    return int(2 ** (8 * KINDS[kind].size - 1) - 1)


class NarrowGradient(Op):
    """scale = the least power of two with |g| <= limit * scale everywhere;  q = round(g / scale)

    q is i16 or i8, and scale one f32, 2^-100 at least. Halves go to the even number. If some of g
    is not finite, q is 0 and the scale NaN.
    """

    name = "narrow_gradient"
    differentiable = False

    class Attrs(Attributes):
        kind: str = "int16"
        limit: int = LEAST

    @staticmethod
    def infer(a: Attrs, g: Type) -> tuple[Type, Type]:
        require_f32(g)
        require(a.kind in KINDS, f"there is no gradient of {a.kind}")
        require(LEAST <= a.limit <= largest(a.kind), f"{a.limit} is not a limit of {a.kind}")
        return Type(KINDS[a.kind], g.shape), Type(DType.F32, (1,))

    @staticmethod
    def ref(a: Attrs, g: Array) -> tuple[Array, Array]:
        kind, top, scale = KINDS[a.kind].numpy, float(np.abs(g).max()), SMALLEST
        if not np.isfinite(top):
            return np.zeros(g.shape, kind), np.full(1, np.nan, g.dtype)
        while a.limit * scale < top:
            scale *= 2
        return np.rint(g / g.dtype.type(scale)).astype(kind), np.full(1, scale, g.dtype)

    @staticmethod
    def call(node: Node) -> Call:
        (g,), (q, scale) = node.ins, node.outs
        args = (q, scale, g, g.type.elements, node.attrs.limit)
        return Call(f"whet_narrow_gradient_{q.type.dtype.label}", args, "narrow_gradient")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)  # a narrower number is written no later than its place is read


def require_gradient(dy: Type, scale: Type | None) -> Type:
    """The float that dy stands for: it is f32 itself, or an integer with a scale."""
    if scale is None:
        require_f32(dy)
    else:
        require(dy.dtype in KINDS.values(), f"needs an i16 or i8 gradient, got {dy}")
        require(scale == Type(DType.F32, (1,)), f"{scale} is not a scale of a gradient")
    return Type(DType.F32, dy.shape)


def whole(x: Array) -> Array:
    """Integers as doubles, in which sums below 2^53 are exact and quick."""
    return x.astype(np.float64)


def scaled(sums: Array, scale: Array) -> Array:
    """Sums that are whole numbers, as floats; there is no -0 among them."""
    return sums.astype(np.int64).astype(scale.dtype) * scale


def source_for(name: str, dy: Type) -> str:
    """The file with this kernel for a gradient of this type, which is what the kernel is called."""
    return name if dy.dtype is DType.F32 else f"{name}_{dy.dtype.label}"
