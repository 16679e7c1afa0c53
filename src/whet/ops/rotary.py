"""Rotary position embedding: pairs of channels turn by an angle that depends on the position."""

from __future__ import annotations

import math

import numpy as np

from ..ir import Array, Attributes, Builder, Call, Grads, Node, Op, Type
from ._common import d, over_first, require, require_f32, same_axis


class Rotary(Op):
    """y[i] = x[i] * cos[i] - x[i + h] * sin[i]; y[i + h] = x[i + h] * cos[i] + x[i] * sin[i]

    For i < h, the last axis of cos and sin. Channels of x from 2 h on stay as they are. The other
    axes of cos and sin have the sizes of x or 1; only axes next to each other may differ from 1. If
    `back`, pairs turn back, as gradients do. cos and sin have no gradient.
    """

    name = "rotary"

    class Attrs(Attributes):
        back: bool = False

    @staticmethod
    def infer(a: Attrs, x: Type, cos: Type, sin: Type) -> Type:
        require_f32(x, cos, sin)
        require(cos.shape == sin.shape, f"{cos} and {sin} differ")
        require(cos.rank == x.rank >= 1, f"{x} and {cos} have other numbers of axes")
        require(2 * cos.shape[-1] <= x.shape[-1], f"{cos} turns more channels than {x} has")
        pairs = zip(cos.shape[:-1], x.shape[:-1], strict=True)
        require(all(n in (1, m) for n, m in pairs), f"{cos} does not broadcast to {x}")
        require(walk(x, cos) is not None, f"{cos} varies along axes of {x} with others between")
        return x

    @staticmethod
    def ref(a: Attrs, x: Array, cos: Array, sin: Array) -> Array:
        half = cos.shape[-1]
        u, v, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        turn = -sin if a.back else sin
        return np.concatenate([u * cos - v * turn, v * cos + u * turn, rest], axis=-1)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (x, cos, sin) = douts, node.ins
        assert dy is not None
        dx = b.emit(Rotary, dy, cos, sin, name=d(x), back=not node.attrs.back)
        return (dx if wants[0] else None), None, None

    @staticmethod
    def call(node: Node) -> Call:
        x, cos, sin = node.ins
        sizes = walk(x.type, cos.type)
        assert sizes is not None
        args = (node.out, x, cos, sin, *sizes, x.shape[-1], cos.shape[-1])
        return Call("whet_rotary_f32", (*args, -1.0 if node.attrs.back else 1.0), "rotary")

    inplace = staticmethod(over_first)

    @staticmethod
    def row_axis(node: Node, operand: int, axis: int) -> int | None:
        return same_axis(node, operand, axis) if axis != node.out.type.rank - 1 else None


def walk(x: Type, table: Type) -> tuple[int, int, int] | None:
    """Axes of x but the last before, in and behind the rows of the table, multiplied."""
    sizes, rows = x.shape[:-1], table.shape[:-1]
    varying = [i for i, n in enumerate(rows) if n != 1]
    first, end = (varying[0], varying[-1] + 1) if varying else (0, 0)
    if any(n == 1 and m != 1 for n, m in zip(rows[first:end], sizes[first:end], strict=True)):
        return None
    return math.prod(sizes[:first]), math.prod(rows[first:end]), math.prod(sizes[end:])
