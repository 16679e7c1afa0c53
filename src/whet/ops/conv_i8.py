"""Convolutions of int8 images with int8 weights, summed in int32; their gradients are f32.

What comes back, dy, is f32 too, or integers with a scale: see `gradient_i8`. Sums of floats are
made in a stated order, one product after the other, each product and each sum rounded; sums of
integers are exact, become a float, and are scaled: so every kernel gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Layer, Node, Op, Type, Value
from ._common import require
from .conv import (
    Conv2d,
    Conv2dDw,
    Conv2dDx,
    Depthwise,
    DepthwiseDw,
    DepthwiseDx,
    Window,
    conv_struct,
    layer_args,
    layer_vjp,
    taps,
)
from .gradient_i8 import require_gradient, scaled, source_for, whole
from .linear import Linear, rows
from .shape import Reshape


def require_i8(*types: Type) -> None:
    for t in types:
        require(t.dtype is DType.I8, f"needs i8 operands, got {t}")


def as_f32(t: Type) -> Type:
    """A float of this shape: what the shape rules of the float operators speak of."""
    return Type(DType.F32, t.shape)


def as_i32(t: Type) -> Type:
    return Type(DType.I32, t.shape)


def centred(x: Array, zero: int) -> Array:
    """x - zero, so that padding is 0."""
    return x.astype(np.int32) - zero


class IntegerLayer(Op):
    """Becomes the `integer` form of the layers that it is the `integer_of`."""

    integer_of: ClassVar[tuple[type[Op], ...]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for op in cls.integer_of:
            op.integer = cls

    @classmethod
    def sums(
        cls, b: Builder, attrs: Attributes, x: Value, w: Value, bias: Sequence[Value], **more: Any
    ) -> Value:
        """Emit it for a layer of floats with these attributes."""
        own = {f.name for f in fields(cls.Attrs)}
        given = {name: value for name, value in asdict(attrs).items() if name in own}
        return b.emit(cls, x, w, *bias, **given, **more)


class Conv2dI8(IntegerLayer):
    """y[n,p,q,o] = b[o] + sum_{r,s,i} (x[n, p*stride+r*dilation-pad, ..., i] - zero) * w[o,r,s,i]

    x and w are i8, b and y are i32. Padding counts as `zero`.
    """

    name = "conv2d_i8"
    layer = Layer(inputs=-1, outputs=0)
    integer_of = (Conv2d, Linear)
    same_bits = True

    class Attrs(Window):
        groups: int = 1
        zero: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type, w: Type, b: Type | None = None) -> Type:
        require_i8(x, w)
        require(b is None or b.dtype is DType.I32, f"the bias must be i32, not {b}")
        plain = Conv2d.Attrs(a.stride, a.pad, a.dilation, a.groups)
        return as_i32(Conv2d.infer(plain, as_f32(x), as_f32(w), b))

    @staticmethod
    def ref(a: Attrs, x: Array, w: Array, b: Array | None = None) -> Array:
        plain = Conv2d.Attrs(a.stride, a.pad, a.dilation, a.groups)
        y = Conv2d.ref(plain, centred(x, a.zero).astype(np.float64), w.astype(np.float64))
        y = y.astype(np.int64) if b is None else y.astype(np.int64) + b
        return wrapped(y)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        return layer_vjp(b, node, douts, wants, Conv2dI8Dx, Conv2dI8Dw)

    @staticmethod
    def call(node: Node) -> Call:
        return layer_call(node, node.attrs.groups)

    macs = staticmethod(Conv2d.macs)

    @classmethod
    def sums(
        cls, b: Builder, attrs: Attributes, x: Value, w: Value, bias: Sequence[Value], **more: Any
    ) -> Value:
        """A linear layer is a convolution of an image one row high."""
        if w.type.rank == 2:
            o, i = w.shape
            image = (1, 1, rows(x.shape), i)
            if x.shape != image:
                x = b.emit(Reshape, x, name=f"{x.name}.row", shape=image)
            w = b.emit(Reshape, w, name=f"{w.name}.view", shape=(o, 1, 1, i))
        return super().sums(b, attrs, x, w, bias, **more)

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        w = ins[1].permute(0, 3, 1, 2)
        return torch_conv2d(torch, node.attrs, ins[0], w, ins[2:], node.attrs.groups)


def torch_conv2d(torch: Any, a: Any, x: Any, w: Any, bias: Sequence[Any], groups: int) -> Any:
    """PyTorch's convolution of x[n,h,w,c] - zero with w[o,i,kh,kw]."""
    top, left, bottom, right = a.pad
    f = torch.nn.functional
    x = f.pad((x - a.zero).permute(0, 3, 1, 2), (left, right, top, bottom))
    window = {"stride": a.stride, "dilation": a.dilation, "groups": groups}
    return f.conv2d(x, w, *bias, **window).permute(0, 2, 3, 1)


def wrapped(y: Array) -> Array:
    """As 32-bit sums in two's complement."""
    return (y & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def scattered(a: Window, size: tuple[int, int], dy: Array, terms: list[list[list[Array]]]) -> Array:
    """dx from terms[r][s], a list of what each output channel adds at tap (r, s), in order.

    A pixel of dx receives from the pixels of dy one after the other, row by row, which is from
    the last tap to the first; of each of them, channel by channel.
    """
    n, p, q, _ = dy.shape
    low_h, low_w, high_h, high_w = a.pad
    c = terms[0][0][0].shape[-1]
    dx = np.zeros((n, size[0] + low_h + high_h, size[1] + low_w + high_w, c), dy.dtype)
    for r in reversed(range(len(terms))):
        for s in reversed(range(len(terms[0]))):
            top, left = r * a.dilation[0], s * a.dilation[1]
            rows = slice(top, top + a.stride[0] * (p - 1) + 1, a.stride[0])
            cols = slice(left, left + a.stride[1] * (q - 1) + 1, a.stride[1])
            for term in terms[r][s]:
                dx[:, rows, cols] += term
    return dx[:, low_h : low_h + size[0], low_w : low_w + size[1]]


class IntegerGradient(Op):
    """dx from dy and w, or dw from dy and x; `real` is its operator on floats.

    An integer dy has a scale, behind the i8 operand, and its sums are exact. Floats are summed
    `in_order`.
    """

    same_bits = True
    real: ClassVar[Any]
    in_order: ClassVar[Callable[..., Array]]

    @staticmethod
    def zero(a: Any) -> int:
        """The zero point of the i8 operand: weights have none."""
        return 0

    @classmethod
    def infer(cls, a: Any, dy: Type, operand: Type, scale: Type | None = None) -> Type:
        require_i8(operand)
        found: Type = cls.real.infer(a, require_gradient(dy, scale), as_f32(operand))
        return found

    @classmethod
    def ref(cls, a: Any, dy: Array, operand: Array, scale: Array | None = None) -> Array:
        if scale is None:
            return cls.in_order(a, dy, operand)
        numbers = whole(centred(operand, cls.zero(a)))
        return scaled(cls.real.ref(a, whole(dy), numbers), scale)


class Conv2dI8Dx(IntegerGradient):
    """dx = the transpose of conv2d_i8 in x, applied to dy: f32 times i8

    Each element is summed over the pixels of dy that it reaches, row by row, and of each pixel
    over its channels. An integer dy has a scale, behind w.
    """

    name = "conv2d_i8_dx"
    reads_weights = True
    real = Conv2dDx
    Attrs = Conv2dDx.Attrs

    @staticmethod
    def in_order(a: Conv2dDx.Attrs, dy: Array, w: Array) -> Array:
        o, kh, kw, i = w.shape
        n, p, q, _ = dy.shape
        grouped = w.reshape(a.groups, o // a.groups, kh, kw, i).astype(dy.dtype)
        split = dy.reshape(n, p, q, a.groups, o // a.groups, 1)
        terms = [
            [
                [
                    (split[..., k, :] * grouped[:, k, r, s]).reshape(n, p, q, a.groups * i)
                    for k in range(o // a.groups)
                ]
                for s in range(kw)
            ]
            for r in range(kh)
        ]
        return scattered(a, a.size, dy, terms)

    @staticmethod
    def call(node: Node) -> Call:
        return dx_call(node, node.attrs.groups)

    macs = staticmethod(Conv2dDx.macs)

    @staticmethod
    def largest_sum(node: Node) -> int:
        dy, w = node.ins[:2]
        return largest_sum_dx(node, w.shape[1:3], dy.shape[3] // node.attrs.groups)


def largest_sum_dx(node: Node, kernel: tuple[int, ...], channels: int) -> int:
    """With a gradient of ones; each pixel of dx is a sum over `channels` of each dy that it meets.

    `meeting` is how many outputs along an axis read one pixel, at most: each by another tap.
    """
    dy, a = node.ins[0].shape, node.attrs

    def meeting(kernel: int, outputs: int, stride: int, dilation: int) -> int:
        common = math.gcd(stride, dilation)
        return min(-(-kernel * common // stride), -(-outputs * common // dilation))

    return math.prod(map(meeting, kernel, dy[1:3], a.stride, a.dilation)) * channels * 128


def inside(x: Array, a: Any, out: tuple[int, int]) -> Array:
    """Whether each tap of each window is in the image: [windows, kh, kw]."""
    return taps(np.ones((*x.shape[:3], 1), bool), a, a.kernel, out).reshape(-1, *a.kernel)


class IntegerDw(IntegerGradient):
    """The gradient of i8 weights."""

    @staticmethod
    def zero(a: Any) -> int:
        return int(a.zero)

    @staticmethod
    def largest_sum(node: Node) -> int:
        """With a gradient of ones, over all of its pixels."""
        zero = node.attrs.zero
        return math.prod(node.ins[0].shape[:3]) * max(127 - zero, 128 + zero)


def layer_call(node: Node, groups: int) -> Call:
    args, struct = layer_args(node, groups)
    return Call(f"whet_{node.op.name}", (*args, node.attrs.zero, struct), node.op.name)


def dx_call(node: Node, groups: int) -> Call:
    dy, w, *_ = node.ins
    struct = conv_struct(node.out.type, dy.type, w.shape[-3:-1], groups, node.attrs)
    source = source_for(node.op.name, dy.type)
    return Call(f"whet_{source}", (node.out, *node.ins, struct), source)


def dw_call(node: Node, groups: int) -> Call:
    (dy, x, *_), a = node.ins, node.attrs
    struct = conv_struct(x.type, dy.type, a.kernel, groups, a)
    source = source_for(node.op.name, dy.type)
    return Call(f"whet_{source}", (node.out, *node.ins, a.zero, struct), source)


class Conv2dI8Dw(IntegerDw):
    """dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*stride+r*dilation-pad, ..., i] - zero)

    Summed pixel by pixel, in order; padding adds nothing. An integer dy has a scale, behind x.
    """

    name = "conv2d_i8_dw"
    real = Conv2dDw

    class Attrs(Conv2dDw.Attrs):
        zero: int = 0

    @staticmethod
    def in_order(a: Attrs, dy: Array, x: Array) -> Array:
        n, p, q, o = dy.shape
        i = x.shape[3] // a.groups
        pixels = taps(centred(x, a.zero).astype(dy.dtype), a, a.kernel, (p, q))
        pixels = pixels.reshape(n * p * q, *a.kernel, a.groups, i)
        split = dy.reshape(n * p * q, a.groups, o // a.groups)
        dw = np.zeros((a.groups, o // a.groups, *a.kernel, i), dy.dtype)
        for row, window, there in zip(split, pixels, inside(x, a, (p, q)), strict=True):
            terms = row[:, :, None, None, None] * window.transpose(2, 0, 1, 3)[:, None]
            dw += np.where(there[:, :, None], terms, 0)
        return dw.reshape(o, *a.kernel, i)

    @staticmethod
    def call(node: Node) -> Call:
        return dw_call(node, node.attrs.groups)

    macs = staticmethod(Conv2dDw.macs)


class DepthwiseI8(IntegerLayer):
    """y[n,p,q,c] = b[c] + sum_{r,s} (x[n, p*stride+r*dilation-pad, ..., c] - zero) * w[r,s,c]

    x and w are i8, b and y are i32. Padding counts as `zero`.
    """

    name = "depthwise_i8"
    layer = Layer(inputs=-1, outputs=-1)
    integer_of = (Depthwise,)
    same_bits = True

    class Attrs(Window):
        zero: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type, w: Type, b: Type | None = None) -> Type:
        require_i8(x, w)
        require(b is None or b.dtype is DType.I32, f"the bias must be i32, not {b}")
        return as_i32(Depthwise.infer(a, as_f32(x), as_f32(w), b))

    @staticmethod
    def ref(a: Attrs, x: Array, w: Array, b: Array | None = None) -> Array:
        y = Depthwise.ref(a, centred(x, a.zero), w.astype(np.int32)).astype(np.int64)
        return wrapped(y if b is None else y + b)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        return layer_vjp(b, node, douts, wants, DepthwiseI8Dx, DepthwiseI8Dw)

    @staticmethod
    def call(node: Node) -> Call:
        return layer_call(node, node.ins[0].shape[3])

    macs = staticmethod(Depthwise.macs)

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        w = ins[1].permute(2, 0, 1).unsqueeze(1)
        return torch_conv2d(torch, node.attrs, ins[0], w, ins[2:], len(w))


class DepthwiseI8Dx(IntegerGradient):
    """dx = the transpose of depthwise_i8 in x, applied to dy: f32 times i8

    Each element is summed over the pixels of dy that it reaches, row by row. An integer dy has a
    scale, behind w.
    """

    name = "depthwise_i8_dx"
    reads_weights = True
    real = DepthwiseDx
    Attrs = DepthwiseDx.Attrs

    @staticmethod
    def in_order(a: DepthwiseDx.Attrs, dy: Array, w: Array) -> Array:
        terms = [[[dy * tap] for tap in row] for row in w.astype(dy.dtype)]
        return scattered(a, a.size, dy, terms)

    @staticmethod
    def call(node: Node) -> Call:
        return dx_call(node, node.out.shape[3])

    macs = staticmethod(DepthwiseDx.macs)

    @staticmethod
    def largest_sum(node: Node) -> int:
        return largest_sum_dx(node, node.ins[1].shape[:2], 1)


class DepthwiseI8Dw(IntegerDw):
    """dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * (x[n, p*stride+r*dilation-pad, ..., c] - zero)

    Summed pixel by pixel, in order; padding adds nothing. An integer dy has a scale, behind x.
    """

    name = "depthwise_i8_dw"
    real = DepthwiseDw

    class Attrs(DepthwiseDw.Attrs):
        zero: int = 0

    @staticmethod
    def in_order(a: Attrs, dy: Array, x: Array) -> Array:
        n, p, q, c = dy.shape
        pixels = taps(centred(x, a.zero).astype(dy.dtype), a, a.kernel, (p, q))
        dw = np.zeros((*a.kernel, c), dy.dtype)
        pixels = pixels.reshape(n * p * q, *a.kernel, c)
        for row, window, there in zip(dy.reshape(-1, c), pixels, inside(x, a, (p, q)), strict=True):
            dw += np.where(there[:, :, None], row * window, 0)
        return dw

    @staticmethod
    def call(node: Node) -> Call:
        return dw_call(node, node.ins[1].shape[3])

    macs = staticmethod(DepthwiseDw.macs)
