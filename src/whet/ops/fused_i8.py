"""int8 layers with what follows them: the sums are narrowed while they are at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Array, Call, Node, Type, Value
from ._common import require
from .conv import Window, conv_struct
from .conv_i8 import Conv2dI8, DepthwiseI8, wrapped
from .fused import Fused
from .quantized import Narrow, Requantize, bits_of, narrow_struct


class Narrowed(Narrow):
    """A layer of x - x_zero, then `requantize`; which operands follow x and w is said here.

    They are, in this order: the bias, the scale, and if there is a `part` a second x and w whose
    products are added to the same sums.
    """

    x_zero: int = 0
    bias: bool = False
    part: bool = False

    @property
    def operands(self) -> int:
        return 3 + self.bias + 2 * self.part

    def requantize(self) -> Requantize.Attrs:
        return Requantize.Attrs(self.zero, self.low, self.high, self.mask)


class NarrowedLayer(Fused):
    """What layers of integers share that are fused with `requantize`."""

    same_bits = True
    reads_weights = True

    @classmethod
    def inner(cls, a: Any) -> Any:
        window = {"stride": a.stride, "pad": a.pad, "dilation": a.dilation, "zero": a.x_zero}
        groups = {"groups": a.groups} if hasattr(a, "groups") else {}
        return cls.fuses.Attrs(**window, **groups)

    @classmethod
    def infer(cls, a: Narrowed, x: Type, w: Type, *rest: Type) -> Type | tuple[Type, ...]:
        require(2 + len(rest) == a.operands, "operands do not match the attributes")
        sums = cls.fuses.infer(cls.inner(a), x, w, *rest[: a.bias])
        assert isinstance(sums, Type)
        if a.part:
            again = cls.fuses.infer(cls.inner(a), *rest[-2:])
            require(again == sums, f"the part gives {again}, the whole {sums}")
        require(rest[a.bias].shape == sums.shape[-1:], "needs a scale for every output channel")
        return Requantize.infer(a.requantize(), sums, rest[a.bias])

    @classmethod
    def ref(cls, a: Narrowed, x: Array, w: Array, *rest: Array) -> Array | tuple[Array, ...]:
        sums = np.asarray(cls.fuses.ref(cls.inner(a), x, w, *rest[: a.bias]))
        if a.part:
            more = np.asarray(cls.fuses.ref(cls.inner(a), *rest[-2:]))
            sums = wrapped(sums.astype(np.int64) + more)
        return Requantize.ref(a.requantize(), sums, rest[a.bias])

    @staticmethod
    def macs(node: Node) -> int:
        assert issubclass(node.op, NarrowedLayer)
        whole = node.op.fuses.macs(node)
        if not node.attrs.part:
            return whole
        return whole + node.op.fuses.macs(replace(node, ins=node.ins[-2:]))

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, NarrowedLayer)
        (x, w, *rest), a = node.ins, node.attrs
        bias: Value | None = rest.pop(0) if a.bias else None
        scale, *part = rest
        depthwise = node.op is DepthwiseI8Fused
        kernel = w.shape[:2] if depthwise else w.shape[1:3]
        struct = conv_struct(
            x.type, node.out.type, kernel, x.shape[3] if depthwise else a.groups, a
        )
        second: tuple[Value | None, ...] = (part[0], part[1]) if part else (None, None)
        second = () if depthwise else second
        narrow = narrow_struct(a, a.x_zero, part[0].shape[-1] if part else 0)
        args = (node.out, bits_of(node), x, w, bias, scale, *second, narrow, struct)
        return Call(f"whet_{node.op.name}", args, node.op.fuses.name)


class Conv2dI8Fused(NarrowedLayer):
    """y = requantize(conv2d_i8(x, w, b) + conv2d_i8(x2, w2), scale); x2 and w2 are optional"""

    name = "conv2d_i8_fused"
    fuses = Conv2dI8

    class Attrs(Narrowed, Window):
        groups: int = 1


class DepthwiseI8Fused(NarrowedLayer):
    """y = requantize(depthwise_i8(x, w, b), scale)"""

    name = "depthwise_i8_fused"
    fuses = DepthwiseI8

    class Attrs(Narrowed, Window):
        pass


__all__ = ["Conv2dI8Fused", "DepthwiseI8Fused", "NarrowedLayer"]
