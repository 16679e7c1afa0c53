"""From wide to narrow integers and back: what gives int8 activations their meaning.

An int8 number q stands for the real number (q - zero) * scale. Rounding is to the nearest, halves
to the even neighbour, everywhere. What is beyond the range saturates; one bit per element tells
the backward pass whether that happened, and there rounding counts as the identity.

Grads are those of the integers themselves, in f32: a step of 1 of q is their unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Struct, Type, Value
from ._common import (
    d,
    over_first,
    pack,
    packed,
    require,
    require_bits,
    require_dtype,
    require_f32,
    straight,
    unpack,
)
from .binary import Add, Mul

LOW, HIGH = -128, 127
SOURCES = (DType.F32, DType.I32, DType.I8)


class Narrow(Attributes):
    """y = round(v) + zero, held between low and high; `mask` asks for the bits as well."""

    zero: int = 0
    low: int = LOW
    high: int = HIGH
    mask: bool = False

    def results(self, shape: tuple[int, ...]) -> Type | tuple[Type, Type]:
        require(
            LOW <= self.low <= self.high <= HIGH, f"{self.low}..{self.high} is not an int8 range"
        )
        y = Type(DType.I8, shape)
        return (y, packed(y.elements, 1)) if self.mask else y

    def narrow(self, v: Array) -> Array | tuple[Array, Array]:
        """NaN becomes the lower end."""
        low, high = v.dtype.type(self.low - self.zero), v.dtype.type(self.high - self.zero)
        v = np.where(v > low - 1, v, low - 1)
        v = np.rint(np.where(v < high + 1, v, high + 1))
        y = (np.clip(v, low, high) + self.zero).astype(np.int8)
        return (y, pack((v >= low) & (v <= high), 1)) if self.mask else y


def narrow_struct(a: Narrow, x_zero: int = 0, part: int = 0) -> Struct:
    """`part` is how many input channels of a layer train apart from the others."""
    fields = (
        ("x_zero", x_zero), ("zero", a.zero), ("low", a.low), ("high", a.high), ("part", part),
    )  # fmt: skip
    return Struct("whet_narrow_t", fields)


def bits_of(node: Node) -> Value | None:
    return node.outs[1] if node.attrs.mask else None


class Requantize(Op):
    """y = round((x - x_zero) * scale[c]) + zero, held between low and high; bit = it was inside

    x is f32, an i32 accumulator, or i8; scale has one entry per channel of the last axis, or one
    in all.
    """

    name = "requantize"
    same_bits = True

    class Attrs(Narrow):
        x_zero: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type, scale: Type) -> Type | tuple[Type, Type]:
        require_dtype(x, *SOURCES)
        require(x.dtype is DType.I8 or a.x_zero == 0, f"{x} has no zero point")
        require_scale(x, scale)
        return a.results(x.shape)

    @staticmethod
    def ref(a: Attrs, x: Array, scale: Array) -> Array | tuple[Array, Array]:
        wide = x.astype(np.int32) - a.x_zero if x.dtype == np.int8 else x
        return a.narrow((wide.astype(scale.dtype) * scale).reshape(x.shape))

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        dy, (x, scale) = douts[0], node.ins
        assert dy is not None
        return b.emit(RequantizeDx, dy, node.outs[1], scale, name=d(x)), None

    @staticmethod
    def call(node: Node) -> Call:
        (x, scale), a = node.ins, node.attrs
        args = (node.out, bits_of(node), x, scale, x.type.elements, scale.type.elements,
                narrow_struct(a, a.x_zero))  # fmt: skip
        return Call(f"whet_requantize_{x.type.dtype.label}", args, "requantize")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)  # a narrower number is written no later than its place is read

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        x, scale = ins
        inside = unpack(outs[1], 1, node.out.shape) != 0
        return straight(torch, (x - node.attrs.x_zero) * scale, outs[0], inside)


def require_scale(x: Type, scale: Type) -> None:
    require_f32(scale)
    per_channel = x.rank > 0 and scale.shape == x.shape[-1:]
    require(per_channel or scale.shape == (1,), f"{scale} is not a scale of {x}")


class RequantizeDx(Op):
    """dx = dy * scale[c] where the bit is set, else 0"""

    name = "requantize_dx"
    same_bits = True

    @staticmethod
    def infer(a: Attributes, dy: Type, bits: Type, scale: Type) -> Type:
        require_f32(dy)
        require_scale(dy, scale)
        require_bits(bits, dy)
        return dy

    @staticmethod
    def ref(a: Attributes, dy: Array, bits: Array, scale: Array) -> Array:
        return np.where(unpack(bits, 1, dy.shape), (dy * scale).reshape(dy.shape), 0)

    @staticmethod
    def call(node: Node) -> Call:
        dy, bits, scale = node.ins
        args = (node.out, dy, bits, scale, dy.type.elements, scale.type.elements)
        return Call("whet_requantize_dx_f32", args, "requantize")

    inplace = staticmethod(over_first)


class Dequantize(Op):
    """y = (x - zero) * scale, from i8 or i32"""

    name = "dequantize"

    class Attrs(Attributes):
        scale: float = 1.0
        zero: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require_dtype(x, DType.I8, DType.I32)
        return Type(DType.F32, x.shape)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return (x.astype(np.int32) - a.zero).astype(np.float32) * np.float32(a.scale)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        return (b.emit(Mul, douts[0], b.const(np.float32(node.attrs.scale)), name=d(node.ins[0])),)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        args = (node.out, x, x.type.elements, a.scale, a.zero)
        return Call(f"whet_dequantize_{x.type.dtype.label}", args, "dequantize")

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        return (ins[0] - node.attrs.zero) * node.attrs.scale


class AddI8(Op):
    """y = round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + zero, held between low and high

    The scales are those of the operands, divided by that of the result.
    """

    name = "add_i8"
    int8_of = (Add,)
    same_bits = True

    class Attrs(Narrow):
        a_zero: int = 0
        b_zero: int = 0
        a_scale: float = 1.0
        b_scale: float = 1.0

    @staticmethod
    def infer(attrs: Attrs, a: Type, b: Type) -> Type | tuple[Type, Type]:
        require(a == b and a.dtype is DType.I8, f"needs two i8 of one shape, got {a} and {b}")
        return attrs.results(a.shape)

    @staticmethod
    def ref(attrs: Attrs, a: Array, b: Array) -> Array | tuple[Array, Array]:
        left = (a.astype(np.float32) - attrs.a_zero) * np.float32(attrs.a_scale)
        right = (b.astype(np.float32) - attrs.b_zero) * np.float32(attrs.b_scale)
        return attrs.narrow(left + right)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        dy, a = douts[0], node.attrs
        assert dy is not None
        return tuple(
            b.emit(RequantizeDx, dy, node.outs[1], b.const([scale]), name=d(x)) if wanted else None
            for x, scale, wanted in zip(node.ins, (a.a_scale, a.b_scale), wants, strict=True)
        )

    @staticmethod
    def call(node: Node) -> Call:
        a = node.attrs
        args = (node.out, bits_of(node), *node.ins, node.out.type.elements, a.a_zero, a.b_zero,
                a.a_scale, a.b_scale, narrow_struct(a))  # fmt: skip
        return Call("whet_add_i8", args, "add_i8")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (0, 1))

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        (left, right), a = ins, node.attrs
        real = (left - a.a_zero) * a.a_scale + (right - a.b_zero) * a.b_scale
        return straight(torch, real, outs[0], unpack(outs[1], 1, node.out.shape) != 0)
