"""Averages and resampling of int8 images; their gradients are those of the float operators."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ..ir import Array, Builder, Call, Node, Op, Type, Value
from ._common import d, require
from .conv_i8 import as_f32, centred, require_i8
from .pool import AvgPool, AvgPool2dDx, check_pool, pool_struct


class AvgPoolI8(Op):
    """y = round(sum of (x - zero) over each window / its size) + zero

    The result has the scale and zero point of x. Halves are rounded to the even neighbour.
    """

    name = "avg_pool_i8"

    @dataclass(frozen=True)
    class Attrs(AvgPool):
        zero: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require_i8(x)
        check_pool(a, as_f32(x))
        require(all(n == 1 for n in a.dilation), "averages are of neighbours")
        return Type(x.dtype, (x.shape[0], *a.out, x.shape[3]))

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        n, h, w, c = x.shape
        y = np.empty((n, *a.out, c), np.int8)
        for p, q, rows, cols in a.windows((h, w)):
            window = centred(x, a.zero)[:, rows.start : rows.stop, cols.start : cols.stop]
            size = np.float32(round(1 / a.share((h, w), p, q)))
            mean = np.rint(window.sum(axis=(1, 2)).astype(np.float32) / size)
            y[:, p, q] = np.clip(mean + a.zero, -128, 127)
        return y

    @staticmethod
    def vjp(
        b: Builder, node: Node, douts: tuple[Value | None, ...], wants: tuple[bool, ...]
    ) -> tuple[Value | None, ...]:
        (x,) = node.ins
        assert douts[0] is not None
        attrs = asdict(node.attrs)
        del attrs["zero"]
        return (b.emit(AvgPool2dDx, douts[0], name=d(x), size=x.shape[1:3], **attrs),)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        struct = pool_struct(x.type, a, a.count_pad, a.divisor)
        return Call("whet_avg_pool_i8", (node.out, x, a.zero, struct), "avg_pool_i8")
