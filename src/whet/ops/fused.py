"""Layers with what follows them: an addition and a clamp, made while the result is at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from ..ir import Array, Attributes, Call, Node, Op, Type, Value
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


class Fused(Op):
    """An operator with what follows it; it becomes the `fused` form of the one that it `fuses`."""

    fuses: ClassVar[type[Op]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "fuses" in cls.__dict__:
            cls.fuses.fused = cls

    @classmethod
    def of(cls, op: type[Op]) -> type[Self] | None:
        """The fused form of an operator, if it is of this kind."""
        form = op.fused
        return form if form is not None and issubclass(form, cls) else None


class FusedLayer(Fused):
    """What layers of floats share that are fused with an epilogue."""

    reads_weights = True

    @classmethod
    def inner(cls, a: Epilogue) -> Attributes:
        return cls.fuses.Attrs(**{f.name: getattr(a, f.name) for f in fields(cls.fuses.Attrs)})

    @classmethod
    def infer(cls, a: Epilogue, x: Type, w: Type, *rest: Type) -> Type | tuple[Type, Type]:
        require(len(rest) == a.bias + a.add, "operands do not match the attributes")
        y = cls.fuses.infer(cls.inner(a), x, w, *rest[: a.bias])
        assert isinstance(y, Type)
        require(not a.add or rest[-1] == y, f"cannot add {rest[-1:]} to {y}")
        plain = cls.fuses is not Linear and not getattr(a, "winograd", False)
        require(not a.mask or plain, "neither a linear layer nor Winograd's method gives bits")
        return (y, packed(y.elements, 1)) if a.mask else y

    @classmethod
    def ref(cls, a: Epilogue, x: Array, w: Array, *rest: Array) -> Array | tuple[Array, Array]:
        y = np.asarray(cls.fuses.ref(cls.inner(a), x, w, *rest[: a.bias]))
        y = y + rest[-1] if a.add else y
        return a.with_bits(np.minimum(np.maximum(y, y.dtype.type(a.low)), y.dtype.type(a.high)))

    @classmethod
    def exact(cls, a: Epilogue, x: Array, w: Array, *rest: Array) -> Array | tuple[Array, Array]:
        """`exact` of a layer takes what is added too: the kernels' sums start from that."""
        assert cls.fuses.exact is not None
        bias, add = rest[0] if a.bias else None, rest[-1] if a.add else None
        y = np.asarray(cls.fuses.exact(cls.inner(a), x, w, bias, add))
        return a.with_bits(_exact.clip(y, a.low, a.high))

    @staticmethod
    def macs(node: Node) -> int:
        assert issubclass(node.op, FusedLayer)
        return node.op.fuses.macs(node)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, node.attrs.operands - 1),) if node.attrs.add else ()

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, FusedLayer)
        (x, w, *rest), a = node.ins, node.attrs
        bias = rest[0] if a.bias else None
        add = rest[-1] if a.add else None
        plain = node.op.fuses.call(replace(node, ins=(x, w)))  # y, x, w, no bias, then sizes
        assert plain is not None
        epilogue = (bias, add, a.low, a.high)
        if plain.source == "winograd":  # which has them all in any case
            return replace(plain, args=(node.out, x, w, *epilogue, *plain.args[7:]))
        if a.mask:
            args = (*node.outs, x, w, *epilogue, *plain.args[4:])
            return Call(f"whet_{node.op.fuses.name}_masked_f32", args, plain.source)
        return Call(f"whet_{node.op.name}_f32", (node.out, x, w, *epilogue, *plain.args[4:]),
                    plain.source)  # fmt: skip

    @classmethod
    def packable(cls, node: Node) -> Iterator[tuple[Value, tuple[int, int]]]:
        return cls.fuses.packable(node)

    @staticmethod
    def workspace(node: Node) -> int:
        assert issubclass(node.op, FusedLayer)
        return node.op.fuses.workspace(node)


class Conv2dFused(FusedLayer):
    """y = min(max(conv2d(x, w, b) + add, low), high)"""

    name = "conv2d_fused"
    fuses = Conv2d

    class Attrs(Epilogue, Conv2d.Attrs):
        pass


class DepthwiseFused(FusedLayer):
    """y = min(max(depthwise(x, w, b) + add, low), high)"""

    name = "depthwise_fused"
    fuses = Depthwise

    class Attrs(Epilogue, Window):
        pass


class LinearFused(FusedLayer):
    """y = min(max(linear(x, w, b) + add, low), high)"""

    name = "linear_fused"
    fuses = Linear
    Attrs = Epilogue


__all__ = ["Conv2dFused", "DepthwiseFused", "Epilogue", "Fused", "FusedLayer", "LinearFused"]
