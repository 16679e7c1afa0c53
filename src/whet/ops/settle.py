"""Updates of integer parameters: how far to move, then by how many whole numbers.

A step operator runs the optimizer in real units: q stands for q * s with s = scale[c] * unit, so
the gradient of the real parameter is g / s, and a real move of m is m / s of q. For plain SGD that
multiplies g by s^-2: quantization-aware scaling (arXiv:2206.15472). With a scale of 1 the optimizer
runs on the integers themselves.

`settle` makes whole numbers of the result, in one of several ways, and saturates.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir import Arg, Array, Attributes, Call, DType, Node, Op, Type, f32
from ._common import around, require, require_dtype, require_f32, require_same
from ._exact import line_sum
from .random import random_words
from .update import UpdateOp

INTEGERS = (DType.I8, DType.I32)


class Step(Attributes):
    """s[c] = scale[c] * unit, c along `axis`; a step has these and those of its optimizer."""

    axis: int = 0
    unit: float = 1.0

    def sizes(self, q: Array, scale: Array) -> tuple[Array, Array]:
        """s, of a shape that broadcasts with q, and 1 / s."""
        s = scale * scale.dtype.type(self.unit)
        shape = [1] * q.ndim
        if q.ndim:
            shape[self.axis] = -1
        s = s.reshape(shape)
        return s, 1 / s


def require_scale(scale: Type, q: Type, axis: int) -> None:
    fits = scale.shape == (1,) or scale.shape == q.shape[axis : axis + 1]
    require(fits, f"{scale} is not a scale of {q} along axis {axis}")


class StepOp(Op):
    """The step of an optimizer for integers; `update` is its rule for floats.

    Operands q, g, scale, then what the optimizer takes behind w and the gradient; results: the
    move, then the next moments.
    """

    differentiable = False
    update: ClassVar[type[UpdateOp]]

    @classmethod
    def infer(cls, a: Step, q: Type, g: Type, scale: Type, *rest: Type) -> tuple[Type, ...] | Type:
        require_dtype(q, *INTEGERS)
        require_f32(scale)
        require_same(q, g)
        require_scale(scale, q, a.axis)
        return cls.update.infer(a, g, g, *rest)

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, StepOp)
        a, update, (q, g, scale, *rest) = node.attrs, node.op.update, node.ins
        sizes = around(q.shape, a.axis) if scale.shape != (1,) else (1, 1, q.type.elements)
        results = (node.out, *update.slots(a, node.outs[1:]))
        operands = (q, g, scale, *update.slots(a, rest))
        kernel = f"whet_{node.op.name}_{q.type.dtype.label}"
        args = (*results, *operands, *sizes, a.unit, *update.numbers(a))
        return Call(kernel, args, node.op.name)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        """The move replaces the gradient, and each moment itself."""
        return ((0, 1), *((i, 2 + i) for i in range(1, len(node.outs))))


class RealSquares(Op):
    """y = sum of (g / s)^2: the squared norm of the gradient of the real parameter

    Operands g and scale, with s as in a step.
    """

    name = "real_squares"
    differentiable = False
    Attrs = Step

    @staticmethod
    def infer(a: Step, g: Type, scale: Type) -> Type:
        require_f32(g, scale)
        require_scale(scale, g, a.axis)
        return f32()

    @staticmethod
    def ref(a: Step, g: Array, scale: Array) -> Array:
        return np.asarray(RealSquares.squares(a, g, scale).sum())

    @staticmethod
    def exact(a: Step, g: Array, scale: Array) -> Array:
        return line_sum(RealSquares.squares(a, g, scale).reshape(-1))

    @staticmethod
    def squares(a: Step, g: Array, scale: Array) -> Array:
        _, r = a.sizes(g, scale)
        return (g * r) * (g * r)

    @staticmethod
    def call(node: Node) -> Call:
        g, scale = (v.type for v in node.ins)
        counts = around(g.shape, node.attrs.axis) if scale.shape != (1,) else (1, 1, g.elements)
        args: tuple[Arg, ...] = (node.out, *node.ins, *counts, node.attrs.unit)
        return Call("whet_real_squares_f32", args, "real_squares")


def real(q: Array, like: Array) -> Array:
    return q.astype(like.dtype)


ROUNDINGS = ("nearest", "stochastic", "truncate")


class Settling(Attributes):
    rounding: str = "nearest"
    site: int = 0  # of the random numbers


class Settle(Op):
    """q' = q - k, saturating, where k is a whole number near the move

    nearest: k = round(move), halves to even. stochastic: k = floor(move + u), u a random number of
    [0, 1). truncate: q' is q - move cut towards 0. With a carry c, of i8 or i16, the fraction that
    rounding drops is kept for the next time: t = move + c / C, k = round(t), c' = round((t - k)
    * C), C = 2^8 or 2^16. A NaN move changes nothing; an infinite one leaves no carry.
    Operands q, move, then the carry or the generator's state if the way needs it; results q' and,
    with a carry, c'.
    """

    name = "settle"
    Attrs = Settling
    differentiable = False

    @staticmethod
    def infer(
        a: Settling, q: Type, move: Type, extra: Type | None = None
    ) -> Type | tuple[Type, ...]:
        require_dtype(q, *INTEGERS)
        require(a.rounding in ROUNDINGS, f"there is no rounding {a.rounding!r}")
        require_f32(move)
        require_same(q, move)
        if a.rounding == "stochastic":
            require(extra == Type(DType.I32, (2,)), "needs the generator's state, i32[2]")
            return q
        if extra is None:
            return q
        fits = extra.dtype in (DType.I8, DType.I16) and extra.shape == q.shape
        require(fits and a.rounding == "nearest", f"{extra} is not a carry of {q}")
        return q, extra

    @staticmethod
    def ref(
        a: Settling, q: Array, move: Array, extra: Array | None = None
    ) -> Array | tuple[Array, ...]:
        move = np.where(np.isnan(move), 0, move).astype(np.float32)
        if a.rounding == "stochastic":
            assert extra is not None
            words = random_words(extra, a.site, q.size).reshape(q.shape)
            fraction = (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
            return lowered(q, floored(move, fraction))
        if a.rounding == "truncate":
            return lowered(np.zeros_like(q), -np.trunc(q.astype(np.float32) - move))
        if extra is None:
            return lowered(q, np.rint(move))
        size = np.float32(256 << 8 * (extra.dtype.itemsize - 1))
        t = move + extra.astype(np.float32) / size
        k = np.rint(t)
        limits = np.iinfo(extra.dtype)
        finite = np.where(np.isfinite(t), t, 0)
        carry = np.clip(np.rint((finite - np.rint(finite)) * size), limits.min, limits.max)
        return lowered(q, k), carry.astype(extra.dtype)

    @staticmethod
    def call(node: Node) -> Call:
        q, _, *extra = (v.type for v in node.ins)
        a = node.attrs
        args: tuple[Arg, ...] = (*node.outs, *node.ins, q.elements)
        if a.rounding == "stochastic":
            return Call(f"whet_settle_stochastic_{q.dtype.label}", (*args, a.site), "settle")
        if extra:
            return Call(f"whet_settle_carry_{q.dtype.label}_{extra[0].dtype.label}", args, "settle")
        return Call(f"whet_settle_{a.rounding}_{q.dtype.label}", args, "settle")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), *((1, 2) for _ in node.outs[1:]))


def lowered(q: Array, k: Array) -> Array:
    """q - k, held in the range of q."""
    low, high = LIMITS[q.dtype.itemsize]
    return np.clip(q.astype(np.float64) - k.astype(np.float64), low, high).astype(q.dtype)


def floored(move: Array, fraction: Array) -> Array:
    """floor(move + fraction), of the sum without rounding: the fraction of move is exact."""
    whole = np.floor(move)
    rest = np.where(np.isfinite(move), move, 0) - np.where(np.isfinite(whole), whole, 0)
    return whole.astype(np.float64) + (rest + fraction >= 1)


class SettleMaster(Op):
    """m' = m - move, held in the range of q;  q' = round(m'): an f32 copy keeps what q cannot

    m is in units of q. Operands q, move, m; results q', m'. A NaN move changes nothing.
    """

    name = "settle_master"
    differentiable = False

    @staticmethod
    def infer(a: Attributes, q: Type, move: Type, m: Type) -> tuple[Type, Type]:
        require_dtype(q, *INTEGERS)
        require_f32(move, m)
        require_same(q, move, m)
        return q, m

    @staticmethod
    def ref(a: Attributes, q: Array, move: Array, m: Array) -> tuple[Array, Array]:
        move = np.where(np.isnan(move), 0, move).astype(np.float32)
        low, high = LIMITS[q.dtype.itemsize]
        m = m - move
        m = np.where(m > low, m, np.float32(low))  # NaN too
        m = np.where(m < high, m, np.float32(high))
        return np.rint(m).astype(q.dtype), m

    @staticmethod
    def call(node: Node) -> Call:
        q = node.ins[0].type
        args: tuple[Arg, ...] = (*node.outs, *node.ins, q.elements)
        return Call(f"whet_settle_master_{q.dtype.label}", args, "settle")

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 2))


# The range of i8, and that of a bias: a float, and so far from the ends of i32 that 8,000 products
# added to it do not leave them; layers of more that have a bias stay in float.
MOST = 2**31 - 2**28
LIMITS = {1: (-128, 127), 4: (-MOST, MOST)}
