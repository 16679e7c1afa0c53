"""Linear layers and their gradients whose operands are rounded to bfloat16.

Products are added in floats. These are forms of operators that are differentiated already:
passes/round_products.py puts them in place.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import ClassVar

from ..ir import Array, Attributes, Call, Node, Op, Type
from . import _exact
from ._bf16 import nearest, widened
from .fused import Epilogue, LinearFused
from .linear import Linear, LinearDw, LinearDx
from .stored import LinearStored, LinearStoredDx, StoredWeight, ends, floats


def bf16(x: Array) -> Array:
    """The nearest numbers of 8 significant bits, in the type of x."""
    return widened(nearest(x)).astype(x.dtype)


def renamed(call: Call | None, old: str, new: str) -> Call:
    assert call is not None
    return replace(call, kernel=call.kernel.replace(old, new), source="bf16")


FEWEST = 16  # rows; for fewer, rounding takes as long as it saves


class Bf16(Op):
    """What such operators share. They become the `rounded` form of those that they stand in for."""

    rounds: ClassVar[tuple[type[Op], ...]] = ()
    multiplies = "bf16"
    differentiable = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.rounded = None
        for op in cls.rounds:
            op.rounded = cls


class LinearBf16(Bf16):
    """y = min(max(linear(x, w, b) + add, low), high), with x and w rounded to bfloat16"""

    name = "linear_bf16"
    rounds = (Linear, LinearFused)
    reads_weights = True
    Attrs = Epilogue

    @staticmethod
    def infer(a: Epilogue, x: Type, w: Type, *rest: Type) -> Type | tuple[Type, Type]:
        return LinearFused.infer(a, x, w, *rest)

    @staticmethod
    def ref(a: Epilogue, x: Array, w: Array, *rest: Array) -> Array | tuple[Array, Array]:
        return LinearFused.ref(a, bf16(x), bf16(w), *rest)

    @staticmethod
    def exact(a: Epilogue, x: Array, w: Array, *rest: Array) -> Array:
        bias, add = rest[0] if a.bias else None, rest[-1] if a.add else None
        return exact(a, x, w, bias, add)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return LinearFused.inplace(node)

    @staticmethod
    def call(node: Node) -> Call:
        fused = LinearFused.call(replace(node, op=LinearFused))
        return renamed(fused, "linear_fused", "linear_bf16")

    @staticmethod
    def macs(node: Node) -> int:
        return Linear.macs(node)


def exact(a: Epilogue, x: Array, w: Array, bias: Array | None, add: Array | None) -> Array:
    start = _exact.start((*x.shape[:-1], len(w)), bias, add)
    return _exact.clip(_exact.matmul(start, bf16(x), bf16(w).T), a.low, a.high)


class LinearBf16Dx(Bf16, LinearDx):
    """dx[r, i] = sum_o dy[r, o] * w[o, i], with dy and w rounded to bfloat16"""

    name = "linear_bf16_dx"
    rounds = (LinearDx,)

    @staticmethod
    def ref(a: Attributes, dy: Array, w: Array) -> Array:
        return LinearDx.ref(a, bf16(dy), bf16(w))

    @staticmethod
    def exact(a: Attributes, dy: Array, w: Array) -> Array:
        return LinearDx.exact(a, bf16(dy), bf16(w))

    @staticmethod
    def call(node: Node) -> Call:
        return renamed(LinearDx.call(node), "linear_dx", "linear_bf16_dx")


class LinearBf16Dw(Bf16, LinearDw):
    """dw[o, i] = sum_r dy[r, o] * x[r, i], with dy and x rounded to bfloat16"""

    name = "linear_bf16_dw"
    rounds = (LinearDw,)

    @staticmethod
    def ref(a: Attributes, dy: Array, x: Array) -> Array:
        return LinearDw.ref(a, bf16(dy), bf16(x))

    @staticmethod
    def exact(a: Attributes, dy: Array, x: Array) -> Array:
        return LinearDw.exact(a, bf16(dy), bf16(x))

    @staticmethod
    def call(node: Node) -> Call:
        return renamed(LinearDw.call(node), "linear_dw", "linear_bf16_dw")


class LinearStoredBf16(Bf16, LinearStored):
    """y = min(max(linear(x, w, b) + add, low), high) of bfloat16, with w as it is stored"""

    name = "linear_stored_bf16"
    instead = (LinearBf16,)

    @staticmethod
    def more(node: Node) -> dict[str, object]:
        return asdict(node.attrs)

    @staticmethod
    def ref(a: LinearStored.Attrs, x: Array, data: Array, *rest: Array) -> Array:
        w = floats(a, data, *rest[: a.arrays - 1])
        y = Linear.ref(a, bf16(x), bf16(w).astype(x.dtype), ends(a, rest)[0])
        return _exact.clip(y + rest[-1] if a.add else y, a.low, a.high)

    @staticmethod
    def exact(a: LinearStored.Attrs, x: Array, data: Array, *rest: Array) -> Array:
        return exact(a, x, floats(a, data, *rest[: a.arrays - 1]), *ends(a, rest))

    @staticmethod
    def call(node: Node) -> Call:
        return renamed(LinearStored.call(node), "linear_stored", "linear_stored_bf16")


class LinearStoredBf16Dx(Bf16, LinearStoredDx):
    """dx[r, i] = sum_o dy[r, o] * w[o, i] of bfloat16, with w as it is stored"""

    name = "linear_stored_bf16_dx"
    instead = (LinearBf16Dx,)

    @staticmethod
    def ref(a: StoredWeight, dy: Array, data: Array, *table: Array) -> Array:
        return LinearDx.ref(a, bf16(dy), bf16(floats(a, data, *table)).astype(dy.dtype))

    @staticmethod
    def exact(a: StoredWeight, dy: Array, data: Array, *table: Array) -> Array:
        return LinearDx.exact(a, bf16(dy), bf16(floats(a, data, *table)))

    @staticmethod
    def call(node: Node) -> Call:
        return renamed(LinearStoredDx.call(node), "linear_stored_dx", "linear_stored_bf16_dx")
