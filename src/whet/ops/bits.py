"""One bit per element: all that the slope of a piecewise linear function needs to be kept."""

from __future__ import annotations

import math

import numpy as np

from ..ir import Array, Attributes, Call, Node, Op, Type
from ._common import over_first, pack, packed, require_bits, require_f32, unpack


class WithinBits(Op):
    """bit i % 8 of byte i / 8 = low < x[i] < high, or low <= x[i] <= high if closed"""

    name = "within_bits"
    differentiable = False

    class Attrs(Attributes):
        low: float = 0.0
        high: float = math.inf
        closed: bool = False

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require_f32(x)
        return packed(x.elements, 1)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        if a.closed:
            return pack((x >= a.low) & (x <= a.high), 1)
        return pack((x > a.low) & (x < a.high), 1)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        args = (node.out, x, x.type.elements, float(a.low), float(a.high), int(a.closed))
        return Call("whet_within_bits_f32", args, "bits")


class BitsDx(Op):
    """dx[i] = dy[i] * (bit i ? inside : outside), and 0 where that slope is 0"""

    name = "bits_dx"

    class Attrs(Attributes):
        inside: float = 1.0
        outside: float = 0.0

    @staticmethod
    def infer(a: Attrs, dy: Type, bits: Type) -> Type:
        require_f32(dy)
        require_bits(bits, dy)
        return dy

    @staticmethod
    def ref(a: Attrs, dy: Array, bits: Array) -> Array:
        slope = np.where(unpack(bits, 1, dy.shape), a.inside, a.outside).astype(dy.dtype)
        return np.where(slope == 0, 0, dy * slope)

    @staticmethod
    def call(node: Node) -> Call:
        dy, bits = node.ins
        a = node.attrs
        args = (node.out, dy, bits, dy.type.elements, float(a.inside), float(a.outside))
        return Call("whet_bits_dx_f32", args, "bits")

    inplace = staticmethod(over_first)
