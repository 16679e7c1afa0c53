"""What a model that writes a text keeps of earlier positions: rows that are put at a place known
only at run time, and attention over as many of them as there are."""

from __future__ import annotations

import numpy as np

from ..ir import Array, Attributes, Call, DType, Node, Op, Type
from ._common import over_first, require, require_dtype, require_f32
from .attention import Attention, Scores


def require_position(position: Type) -> None:
    require(position == Type(DType.I32, ()), f"the position must be one i32, not {position}")


def last_start(rows: int, count: int) -> tuple[int, int]:
    """`bounds` of the position of `count` rows among `rows`."""
    return rows - count + 1, 0


class RowsAt(Op):
    """y[i, ...] = x[position + i, ...] for i < rows"""

    name = "rows_at"
    differentiable = False

    class Attrs(Attributes):
        rows: int = 1

    @staticmethod
    def infer(a: Attrs, x: Type, position: Type) -> Type:
        require_dtype(x, DType.F32, DType.I32)
        require_position(position)
        require(x.rank >= 1 and 1 <= a.rows <= x.shape[0], f"{x} does not have {a.rows} rows")
        return Type(x.dtype, (a.rows, *x.shape[1:]))

    @staticmethod
    def ref(a: Attrs, x: Array, position: Array) -> Array:
        return x[int(position) : int(position) + a.rows]

    @staticmethod
    def call(node: Node) -> Call:
        x, position = node.ins
        args = (node.out, x, position, node.attrs.rows, x.type.elements // x.shape[0])
        return Call(f"whet_rows_at_{x.type.dtype.label}", args, "cached")

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {1: last_start(node.ins[0].shape[0], node.attrs.rows)}


class PutRows(Op):
    """y = x, but y[position + i, ...] = rows[i, ...]"""

    name = "put_rows"
    differentiable = False

    @staticmethod
    def infer(a: Attributes, x: Type, rows: Type, position: Type) -> Type:
        require_f32(x, rows)
        require_position(position)
        fits = x.rank >= 1 and rows.shape[1:] == x.shape[1:] and rows.shape[0] <= x.shape[0]
        require(fits, f"{rows} is no rows of {x}")
        return x

    @staticmethod
    def ref(a: Attributes, x: Array, rows: Array, position: Array) -> Array:
        y = x.copy()
        y[int(position) : int(position) + len(rows)] = rows
        return y

    @staticmethod
    def call(node: Node) -> Call:
        x, rows, position = node.ins
        row = x.type.elements // x.shape[0]
        args = (node.out, x, rows, position, x.shape[0], rows.shape[0], row)
        return Call("whet_put_rows_f32", args, "cached")

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        x, rows, _ = node.ins
        return {2: last_start(x.shape[0], rows.shape[0])}

    inplace = staticmethod(over_first)


class AttentionCached(Op):
    """y[i, h] = sum over j <= position + i of w[h, i, j] * v[j, g], where w is the softmax over
    these j of scale * q[i, h] . k[j, g]

    q is [n,h,d] at the positions from `position` on, k is [s,g,d] and v is [s,g,e] of all positions
    from 0 on; later ones are not read. Each head of keys and values serves h / g heads of queries.
    """

    name = "attention_cached"
    attends = True
    differentiable = False

    class Attrs(Attributes):
        scale: float = 1.0

    @staticmethod
    def infer(a: Attrs, q: Type, k: Type, v: Type, position: Type) -> Type:
        require_f32(q, k, v)
        require_position(position)
        require(q.rank == k.rank == v.rank == 3, "needs q[n,h,d], k[s,g,d] and v[s,g,e]")
        require(k.shape[:2] == v.shape[:2], f"{k} and {v} differ in keys or heads")
        require(q.shape[0] <= k.shape[0], f"{q} has more positions than {k}")
        require(q.shape[1] % k.shape[1] == 0, f"{k.shape[1]} heads of keys do not divide {q}")
        require(q.shape[2] == k.shape[2], f"heads of {q} and {k} differ in width")
        return Type(q.dtype, (*q.shape[:2], v.shape[2]))

    @staticmethod
    def ref(a: Attrs, q: Array, k: Array, v: Array, position: Array) -> Array:
        return Attention.ref(Scores(a.scale), *AttentionCached.whole(q, k, v, position))[0][0]

    @staticmethod
    def exact(a: Attrs, q: Array, k: Array, v: Array, position: Array) -> Array:
        return Attention.exact(Scores(a.scale), *AttentionCached.whole(q, k, v, position))[0][0]

    @staticmethod
    def whole(q: Array, k: Array, v: Array, position: Array) -> tuple[Array, Array, Array, Array]:
        """Operands of `attention`: one sample, and a mask that hides later positions."""
        seen = np.tri(len(q), len(k), int(position)) == 1
        mask = np.where(seen, q.dtype.type(0), q.dtype.type(-np.inf))
        return q[None], k[None], v[None], mask[None, None]

    @staticmethod
    def call(node: Node) -> Call:
        q, k, v, position = node.ins
        sizes = (*q.shape[:2], k.shape[1], q.shape[2], v.shape[2])
        args = (node.out, q, k, v, position, node.attrs.scale, *sizes)
        return Call("whet_attention_cached_f32", args, "cached")

    @staticmethod
    def macs(node: Node) -> int:
        """Of all positions: how many there are is known at run time."""
        q, k, v, _ = (value.type for value in node.ins)
        return q.shape[0] * q.shape[1] * k.shape[0] * (q.shape[2] + v.shape[2])

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {3: last_start(node.ins[1].shape[0], node.ins[0].shape[0])}
