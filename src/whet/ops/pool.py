"""Pooling on NHWC activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Struct, Type
from ._common import d, pack, packed, require, require_dtype, require_f32, unpack
from ._exact import in_order


class Pool(Attributes):
    """Windows of a pooling operator; `out` is explicit because ceil_mode decides it outside.

    An adaptive pool divides the input evenly into `out` windows and ignores the rest.
    """

    out: tuple[int, int] = (1, 1)
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    adaptive: bool = False

    def taps(self, axis: int, size: int, i: int) -> range:
        """The input positions that output position i reads along an axis, padding cut off."""
        if self.adaptive:
            n = self.out[axis]
            return range(i * size // n, -(-(i + 1) * size // n))
        first = i * self.stride[axis] - self.pad[axis]
        step = self.dilation[axis]
        positions = range(first, first + self.kernel[axis] * step, step)
        inside = [j for j in positions if 0 <= j < size]
        return range(inside[0], inside[-1] + 1, step) if inside else range(0)

    def windows(self, size: tuple[int, int]) -> Iterator[tuple[int, int, range, range]]:
        for p in range(self.out[0]):
            for q in range(self.out[1]):
                yield p, q, self.taps(0, size[0], p), self.taps(1, size[1], q)

    def bits(self, size: tuple[int, ...]) -> int:
        """The fewest that tell the places of the largest window apart."""
        kernel = self.kernel
        if self.adaptive:
            lengths = [
                max(len(self.taps(axis, size[axis], i)) for i in range(n))
                for axis, n in enumerate(self.out)
            ]
            kernel = (lengths[0], lengths[1])
        return max(1, (kernel[0] * kernel[1] - 1).bit_length())


def pool_struct(x: Type, a: Pool, count_pad: bool = False, divisor: int = 0) -> Struct:
    n, h, w, c = x.shape
    fields = (
        ("n", n), ("h", h), ("w", w), ("c", c), ("p", a.out[0]), ("q", a.out[1]),
        ("kh", a.kernel[0]), ("kw", a.kernel[1]), ("sh", a.stride[0]), ("sw", a.stride[1]),
        ("ph", a.pad[0]), ("pw", a.pad[1]), ("dh", a.dilation[0]), ("dw", a.dilation[1]),
        ("adaptive", int(a.adaptive)), ("count_pad", int(count_pad)), ("divisor", divisor),
    )  # fmt: skip
    return Struct("whet_pool2d_t", fields)


def check_pool(a: Pool, x: Type) -> None:
    require(x.rank == 4, f"needs x[n,h,w,c], got {x}")
    for axis, size in enumerate(x.shape[1:3]):
        for i in range(a.out[axis]):
            require(len(a.taps(axis, size, i)) > 0, f"window {i} of axis {axis} is all padding")


class MaxPool2d(Op):
    """y = the largest x of each window; index = its place in the window, row by row

    The first of equal maxima wins. The index counts all window positions, padding included, and
    for an adaptive pool the positions of that window. Indices are packed: they wait in memory for
    the backward pass, and a 2x2 window needs no more than 2 bits of each.
    """

    name = "max_pool2d"
    also_int8 = True
    Attrs = Pool

    @staticmethod
    def infer(a: Pool, x: Type) -> tuple[Type, Type]:
        require_dtype(x, DType.F32, DType.I8)
        check_pool(a, x)
        shape = (x.shape[0], *a.out, x.shape[3])
        y, bits = Type(x.dtype, shape), a.bits(x.shape[1:3])
        require(bits <= 24, f"a window of {x} has more than 2^24 places")
        return y, packed(y.elements, bits)

    @staticmethod
    def ref(a: Pool, x: Array) -> tuple[Array, Array]:
        n, h, w, c = x.shape
        y = np.empty((n, *a.out, c), x.dtype)
        index = np.empty((n, *a.out, c), np.int32)
        for p, q, rows, cols in a.windows((h, w)):
            window = x[:, rows.start : rows.stop : rows.step, cols.start : cols.stop : cols.step]
            flat = window.reshape(n, -1, c)
            best = flat.argmax(axis=1)
            y[:, p, q] = np.take_along_axis(flat, best[:, None], axis=1)[:, 0]
            r, s = np.divmod(best, len(cols))
            if a.adaptive:
                index[:, p, q] = r * len(cols) + s
            else:
                top = (rows.start - (p * a.stride[0] - a.pad[0])) // a.dilation[0]
                left = (cols.start - (q * a.stride[1] - a.pad[1])) // a.dilation[1]
                index[:, p, q] = (r + top) * a.kernel[1] + s + left
        return y, pack(index, a.bits((h, w)))

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (x,), a = node.ins, node.attrs
        assert douts[0] is not None
        attrs = {f: getattr(a, f) for f in Pool.__dataclass_fields__}
        size = x.shape[1:3]
        return (b.emit(MaxPool2dDx, douts[0], node.outs[1], name=d(x), size=size, **attrs),)

    @staticmethod
    def call(node: Node) -> Call:
        y, index = node.outs
        (x,) = node.ins
        bits, struct = node.attrs.bits(x.shape[1:3]), pool_struct(x.type, node.attrs)
        source = "max_pool2d_i8" if x.type.dtype is DType.I8 else "max_pool2d"
        kernel = f"whet_max_pool2d_{x.type.dtype.label}"
        return Call(kernel, (y, index, x, bits, struct), source)


class MaxPool2dDx(Op):
    """dx = 0, then every dy is added to the pixel its index names"""

    name = "max_pool2d_dx"

    class Attrs(Pool):
        size: tuple[int, int] = (1, 1)

    @staticmethod
    def infer(a: Attrs, dy: Type, index: Type) -> Type:
        require_f32(dy)
        bits = a.bits(a.size)
        fits = index == packed(dy.elements, bits)
        require(fits, f"{index} does not hold {bits} bits for each of {dy}")
        return Type(dy.dtype, (dy.shape[0], *a.size, dy.shape[3]))

    @staticmethod
    def ref(a: Attrs, dy: Array, index: Array) -> Array:
        places = unpack(index, a.bits(a.size), dy.shape)
        n, _, _, c = dy.shape
        dx = np.zeros((n, *a.size, c), dy.dtype)
        images, channels = np.ogrid[:n, :c]
        for p, q, rows, cols in a.windows(a.size):
            width = len(cols) if a.adaptive else a.kernel[1]
            r, s = np.divmod(places[:, p, q], width)
            if a.adaptive:
                i, j = rows.start + r, cols.start + s
            else:
                i = p * a.stride[0] - a.pad[0] + r * a.dilation[0]
                j = q * a.stride[1] - a.pad[1] + s * a.dilation[1]
            np.add.at(dx, (images, i, j, channels), dy[:, p, q])
        return dx

    @staticmethod
    def call(node: Node) -> Call:
        dy, index = node.ins
        bits, struct = node.attrs.bits(node.attrs.size), pool_struct(node.out.type, node.attrs)
        return Call("whet_max_pool2d_dx_f32", (node.out, dy, index, bits, struct), "max_pool2d")


class AvgPool(Pool):
    count_pad: bool = True  # padding counts as zeros that were averaged
    divisor: int = 0  # if not 0, divide by this instead of the window's size

    def share(self, size: tuple[int, int], p: int, q: int) -> float:
        """The weight of every input of window (p, q)."""
        rows, cols = self.taps(0, size[0], p), self.taps(1, size[1], q)
        if self.divisor:
            return 1 / self.divisor
        if self.adaptive or not self.count_pad:
            return 1 / (len(rows) * len(cols))
        area = 1
        for axis, i in enumerate((p, q)):
            first = i * self.stride[axis] - self.pad[axis]
            area *= min(first + self.kernel[axis], size[axis] + self.pad[axis]) - first
        return 1 / area

    def pooled(self, x: Array, mean: Callable[[Array, float], Array]) -> Array:
        """What `mean` makes of each window, given the share of one element in it."""
        n, h, w, c = x.shape
        y = np.empty((n, *self.out, c), x.dtype)
        for p, q, rows, cols in self.windows((h, w)):
            window = x[:, rows.start : rows.stop, cols.start : cols.stop]
            y[:, p, q] = mean(window, self.share((h, w), p, q))
        return y


class AvgPoolOp(Op):
    """The mean over each window; the gradient is in f32, whatever the operand is."""

    Attrs: ClassVar[type[AvgPool]] = AvgPool
    accepted: ClassVar[tuple[DType, ...]] = (DType.F32,)

    @classmethod
    def infer(cls, a: AvgPool, x: Type) -> Type:
        require_dtype(x, *cls.accepted)
        check_pool(a, x)
        return Type(x.dtype, (x.shape[0], *a.out, x.shape[3]))

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (x,), a = node.ins, node.attrs
        assert douts[0] is not None
        attrs = {f: getattr(a, f) for f in AvgPool.__dataclass_fields__}
        return (b.emit(AvgPool2dDx, douts[0], name=d(x), size=x.shape[1:3], **attrs),)


class AvgPool2d(AvgPoolOp):
    """y = mean of x over each window"""

    name = "avg_pool2d"

    @staticmethod
    def ref(a: AvgPool, x: Array) -> Array:
        def mean(window: Array, share: float) -> Array:
            return window.sum(axis=(1, 2)) * x.dtype.type(share)

        return a.pooled(x, mean)

    @staticmethod
    def exact(a: AvgPool, x: Array) -> Array:
        def mean(window: Array, share: float) -> Array:
            total = in_order(in_order(window.transpose(2, 1, 0, 3)))  # of each row, then of them
            return total * np.float32(share)

        return a.pooled(x, mean)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        struct = pool_struct(x.type, a, a.count_pad, a.divisor)
        return Call("whet_avg_pool2d_f32", (node.out, x, struct), "avg_pool2d")


class AvgPool2dDx(Op):
    """dx = every dy, spread evenly over its window"""

    name = "avg_pool2d_dx"

    class Attrs(AvgPool):
        size: tuple[int, int] = (1, 1)

    @staticmethod
    def infer(a: Attrs, dy: Type) -> Type:
        require_f32(dy)
        return Type(dy.dtype, (dy.shape[0], *a.size, dy.shape[3]))

    @staticmethod
    def ref(a: Attrs, dy: Array) -> Array:
        dx = np.zeros((dy.shape[0], *a.size, dy.shape[3]), dy.dtype)
        for p, q, rows, cols in a.windows(a.size):
            share = dy[:, p, q] * dy.dtype.type(a.share(a.size, p, q))
            dx[:, rows.start : rows.stop, cols.start : cols.stop] += share[:, None, None]
        return dx

    @staticmethod
    def call(node: Node) -> Call:
        a = node.attrs
        struct = pool_struct(node.out.type, a, a.count_pad, a.divisor)
        return Call("whet_avg_pool2d_dx_f32", (node.out, *node.ins, struct), "avg_pool2d")
