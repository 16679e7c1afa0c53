"""Layers with what follows them: an addition and a clamp, made while the result is at hand."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np

from ..ir import Array, Attributes, Call, Node, Op, Type
from . import _exact
from ._common import pack, packed, require
from .conv import Conv2d, Depthwise, Window
from .linear import Linear


class Epilogue(Attributes):
    """y = min(max(layer + add, low), high); `bias` and `add` say which operands follow x and w.

    `mask` asks for a bit of each y as well: whether low < y < high.
    """

    bias: bool = False
    add: bool = False
    low: float = -math.inf
    high: float = math.inf
    mask: bool = False

    @property
    def operands(self) -> int:
        return 2 + self.bias + self.add

    @property
    def clamps(self) -> bool:
        return (self.low, self.high) != (-math.inf, math.inf)

    def with_bits(self, y: Array) -> Array | tuple[Array, Array]:
        return (y, pack((y > self.low) & (y < self.high), 1)) if self.mask else y


class FusedLayer(Op):
    """What the fused layers share; `layer` is the operator without the epilogue."""

    layer: type[Op]

    @classmethod
    def inner(cls, a: Epilogue) -> Attributes:
        return cls.layer.Attrs(**{f.name: getattr(a, f.name) for f in fields(cls.layer.Attrs)})

    @classmethod
    def infer(cls, a: Epilogue, x: Type, w: Type, *rest: Type) -> Type | tuple[Type, Type]:
        require(len(rest) == a.bias + a.add, "operands do not match the attributes")
        y = cls.layer.infer(cls.inner(a), x, w, *rest[: a.bias])
        assert isinstance(y, Type)
        require(not a.add or rest[-1] == y, f"cannot add {rest[-1:]} to {y}")
        plain = cls.layer is not Linear and not getattr(a, "winograd", False)
        require(not a.mask or plain, "neither a linear layer nor Winograd's method gives bits")
        return (y, packed(y.elements, 1)) if a.mask else y

    @classmethod
    def ref(cls, a: Epilogue, x: Array, w: Array, *rest: Array) -> Array | tuple[Array, Array]:
        y = np.asarray(cls.layer.ref(cls.inner(a), x, w, *rest[: a.bias]))
        y = y + rest[-1] if a.add else y
        return a.with_bits(np.minimum(np.maximum(y, y.dtype.type(a.low)), y.dtype.type(a.high)))

    @classmethod
    def exact(cls, a: Epilogue, x: Array, w: Array, *rest: Array) -> Array | tuple[Array, Array]:
        """`exact` of a layer takes what is added too: the kernels' sums start from that."""
        assert cls.layer.exact is not None
        bias, add = rest[0] if a.bias else None, rest[-1] if a.add else None
        y = np.asarray(cls.layer.exact(cls.inner(a), x, w, bias, add))
        return a.with_bits(_exact.clip(y, a.low, a.high))

    @staticmethod
    def macs(node: Node) -> int:
        assert issubclass(node.op, FusedLayer)
        return node.op.layer.macs(node)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, node.attrs.operands - 1),) if node.attrs.add else ()

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, FusedLayer)
        (x, w, *rest), a = node.ins, node.attrs
        bias = rest[0] if a.bias else None
        add = rest[-1] if a.add else None
        plain = node.op.layer.call(replace(node, ins=(x, w)))  # y, x, w, no bias, then sizes
        assert plain is not None
        epilogue = (bias, add, a.low, a.high)
        if plain.source == "winograd":  # which has them all in any case
            return replace(plain, args=(node.out, x, w, *epilogue, *plain.args[7:]))
        if a.mask:
            args = (*node.outs, x, w, *epilogue, *plain.args[4:])
            return Call(f"whet_{node.op.layer.name}_masked_f32", args, plain.source)
        return Call(f"whet_{node.op.name}_f32", (node.out, x, w, *epilogue, *plain.args[4:]),
                    plain.source)  # fmt: skip

    @staticmethod
    def workspace(node: Node) -> int:
        assert issubclass(node.op, FusedLayer)
        return node.op.layer.workspace(node)


class Conv2dFused(FusedLayer):
    """y = min(max(conv2d(x, w, b) + add, low), high)"""

    name = "conv2d_fused"
    layer = Conv2d

    class Attrs(Epilogue, Conv2d.Attrs):
        pass


class DepthwiseFused(FusedLayer):
    """y = min(max(depthwise(x, w, b) + add, low), high)"""

    name = "depthwise_fused"
    layer = Depthwise

    class Attrs(Epilogue, Window):
        pass


class LinearFused(FusedLayer):
    """y = min(max(linear(x, w, b) + add, low), high)"""

    name = "linear_fused"
    layer = Linear
    Attrs = Epilogue


FUSED: dict[type[Op], type[FusedLayer]] = {
    Conv2d: Conv2dFused,
    Depthwise: DepthwiseFused,
    Linear: LinearFused,
}

__all__ = ["FUSED", "Conv2dFused", "DepthwiseFused", "Epilogue", "FusedLayer", "LinearFused"]
