"""Averages and resampling of int8 images; their gradients are those of the float operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Array, Call, DType, Node, Type
from ._common import require, straight
from .conv_i8 import centred
from .pool import AvgPool, AvgPool2d, AvgPoolOp, pool_struct
from .reduce import Mean
from .resize import Resize, Scale, UpsampleBilinear, UpsampleBilinearDx


class AvgPoolI8(AvgPoolOp):
    """y = round(sum of (x - zero) over each window / its size) + zero

    The result has the scale and zero point of x. Halves are rounded to the even neighbour.
    """

    name = "avg_pool_i8"
    int8_of = (AvgPool2d, Mean)
    accepted = (DType.I8,)

    class Attrs(AvgPool):
        zero: int = 0

    @classmethod
    def infer(cls, a: AvgPool, x: Type) -> Type:
        y = super().infer(a, x)
        require(all(n == 1 for n in a.dilation), "averages are of neighbours")
        return y

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        def mean(window: Array, share: float) -> Array:
            total = centred(window, a.zero).sum(axis=(1, 2)).astype(np.float32)
            return np.clip(np.rint(total / np.float32(round(1 / share))) + a.zero, -128, 127)

        return a.pooled(x, mean)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        struct = pool_struct(x.type, a, a.count_pad, a.divisor)
        return Call("whet_avg_pool_i8", (node.out, x, a.zero, struct), "avg_pool_i8")

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        a, f, x = node.attrs, torch.nn.functional, ins[0].permute(0, 3, 1, 2)
        if a.adaptive:
            y = f.adaptive_avg_pool2d(x, a.out)
        else:
            up = ends_beyond(a, node.ins[0].shape[1:3])
            y = f.avg_pool2d(x, a.kernel, a.stride, a.pad, up, a.count_pad, a.divisor or None)
        return straight(torch, y.permute(0, 2, 3, 1), outs[0])


def ends_beyond(a: AvgPool, size: tuple[int, ...]) -> bool:
    """Whether the last windows begin inside the image and end beyond it: PyTorch's ceil_mode."""
    steps = zip(a.out, a.stride, a.kernel, size, a.pad, strict=True)
    return any((out - 1) * stride + k > n + 2 * pad for out, stride, k, n, pad in steps)


class UpsampleBilinearI8(Resize):
    """y = round(x resampled linearly along both axes), halves to even

    The result has the scale and zero point of x. The blend is of the integers themselves, in f32:
    along rows, then between them, every product and every sum rounded.
    """

    name = "upsample_bilinear_i8"
    int8_of = (UpsampleBilinear,)
    dx = UpsampleBilinearDx
    accepted = (DType.I8,)

    @staticmethod
    def ref(a: Scale, x: Array) -> Array:
        real = x.astype(np.float32)
        left, right, across = between(a, 1, x.shape[2])
        upper, lower, down = between(a, 0, x.shape[1])
        across, down = across[:, None], down[:, None, None]
        rows = real[:, :, left] * (1 - across) + real[:, :, right] * across
        return np.rint(rows[:, upper] * (1 - down) + rows[:, lower] * down).astype(np.int8)


def between(a: Scale, axis: int, size: int) -> tuple[Array, Array, Array]:
    """Of every target index: the source indices on either side, and the second one's weight."""
    target, step, half = np.arange(a.out[axis], dtype=np.float32), np.float32(a.step[axis]), 0.5
    source = target * step if a.align_corners else (target + half) * step - half
    source = np.maximum(source, 0)
    low = np.minimum(source.astype(np.int64), size - 1)
    return low, np.minimum(low + 1, size - 1), source - low.astype(np.float32)
