"""Nearest and bilinear resampling of NHWC activations."""

from __future__ import annotations

from dataclasses import asdict
from typing import ClassVar

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Type
from ._common import d, require, require_dtype, require_f32


class Scale(Attributes):
    """`step` is how far the source moves per target pixel, in each direction."""

    out: tuple[int, int] = (1, 1)
    step: tuple[float, float] = (1.0, 1.0)
    align_corners: bool = False


def nearest(a: Scale, axis: int, size: int) -> Array:
    """The source index of every target index along an axis."""
    target = np.arange(a.out[axis], dtype=np.float32)
    return np.minimum(np.floor(target * np.float32(a.step[axis])).astype(np.int64), size - 1)


def blend(a: Scale, axis: int, size: int, dtype: np.dtype[np.floating]) -> Array:
    """The matrix [out, in] that resamples one axis linearly."""
    target = np.arange(a.out[axis], dtype=dtype)
    step = dtype.type(a.step[axis])
    half = dtype.type(0.5)
    source = target * step if a.align_corners else (target + half) * step - half
    source = np.maximum(source, 0)
    low = np.minimum(source.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    weight = source - low
    matrix = np.zeros((a.out[axis], size), dtype)
    np.add.at(matrix, (np.arange(a.out[axis]), low), 1 - weight)
    np.add.at(matrix, (np.arange(a.out[axis]), high), weight)
    return matrix


class ResizeDx(Op):
    class Attrs(Scale):
        size: tuple[int, int] = (1, 1)

    @staticmethod
    def infer(a: Attrs, dy: Type) -> Type:
        require_f32(dy)
        require(dy.shape[1:3] == a.out, f"{dy} is not {a.out}")
        return Type(dy.dtype, (dy.shape[0], *a.size, dy.shape[3]))

    @staticmethod
    def call(node: Node) -> Call:
        return _call(node, node.out.shape)


class Resize(Op):
    Attrs = Scale
    dx: ClassVar[type[ResizeDx]]  # the op of its gradient
    accepted: ClassVar[tuple[DType, ...]] = (DType.F32,)

    @classmethod
    def infer(cls, a: Scale, x: Type) -> Type:
        require_dtype(x, *cls.accepted)
        require(x.rank == 4, f"needs x[n,h,w,c], got {x}")
        return Type(x.dtype, (x.shape[0], *a.out, x.shape[3]))

    @staticmethod
    def call(node: Node) -> Call:
        return _call(node, node.ins[0].shape)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None and issubclass(node.op, Resize)
        (x,) = node.ins
        attrs = asdict(node.attrs)
        return (b.emit(node.op.dx, douts[0], name=d(x), size=x.shape[1:3], **attrs),)


def _call(node: Node, small: tuple[int, ...]) -> Call:
    a = node.attrs
    corners = (int(a.align_corners),) if "bilinear" in node.op.name else ()
    args = (node.out, *node.ins, *small, *a.out, *map(float, a.step), *corners)
    source = node.op.name.removesuffix("_dx").removesuffix("_i8")
    kernel = f"whet_{node.op.name.removesuffix('_i8')}_{node.out.type.dtype.label}"
    return Call(kernel, args, source)


class UpsampleNearestDx(ResizeDx):
    """dx = every dy, added to the pixel it was copied from"""

    name = "upsample_nearest_dx"

    @staticmethod
    def ref(a: ResizeDx.Attrs, dy: Array) -> Array:
        dx = np.zeros((dy.shape[0], *a.size, dy.shape[3]), dy.dtype)
        rows, cols = nearest(a, 0, a.size[0]), nearest(a, 1, a.size[1])
        for image, grad in zip(dx, dy, strict=True):
            np.add.at(image, (rows[:, None], cols[None, :]), grad)
        return dx


class UpsampleNearest(Resize):
    """y[n,p,q,c] = x[n, floor(p * step), floor(q * step), c]"""

    name = "upsample_nearest"
    moves = True
    dx = UpsampleNearestDx
    accepted = (DType.F32, DType.I8)

    @staticmethod
    def ref(a: Scale, x: Array) -> Array:
        rows, cols = nearest(a, 0, x.shape[1]), nearest(a, 1, x.shape[2])
        return x[:, rows][:, :, cols]


class UpsampleBilinearDx(ResizeDx):
    """dx = the transpose of upsample_bilinear, applied to dy"""

    name = "upsample_bilinear_dx"

    @staticmethod
    def ref(a: ResizeDx.Attrs, dy: Array) -> Array:
        rows, cols = blend(a, 0, a.size[0], dy.dtype), blend(a, 1, a.size[1], dy.dtype)
        return np.einsum("ph,qw,npqc->nhwc", rows, cols, dy, optimize=True)


class UpsampleBilinear(Resize):
    """y = x resampled linearly along both axes"""

    name = "upsample_bilinear"
    dx = UpsampleBilinearDx

    @staticmethod
    def ref(a: Scale, x: Array) -> Array:
        rows, cols = blend(a, 0, x.shape[1], x.dtype), blend(a, 1, x.shape[2], x.dtype)
        return np.einsum("ph,qw,nhwc->npqc", rows, cols, x, optimize=True)
