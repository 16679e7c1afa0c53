"""Linear layers that multiply integers: rows of x rounded to int8, and a frozen weight in few bits.

A row has a scale of its own, found when the layer runs. Sums of products are exact; the weight is
one of the forms of stored.py that have integers: "rows" or a format of GGUF. No gradient goes
through these: passes/multiply_bytes.py puts them in place of layers that are differentiated
already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Node, Op, Type, Value
from . import _exact
from ._blocks import BLOCK, ROUNDED
from ._common import require, require_f32
from .bf16 import LinearStoredBf16
from .linear import matrix, rows
from .stored import LinearStored, StoredWeight, ends

HIGHEST = 127
SMALLEST = np.float32(1e-30)  # a row below it counts as zeros
DEEPEST = 1 << 17  # products that an int32 holds the sum of


class QuantizeRows(Op):
    """scale[r] = max_c |x[r, c]| / 127 and q[r, c] = round(x[r, c] / scale[r]), with sums of q

    sums[r, k] is that of 32 neighbours: elements 32 k to 32 k + 31 of a row. A row that has an
    infinity or NaN becomes NaN.
    """

    name = "quantize_rows"
    differentiable = False

    @staticmethod
    def infer(a: Attributes, x: Type) -> tuple[Type, Type, Type]:
        require_f32(x)
        require(x.rank >= 1 and x.shape[-1] % BLOCK == 0, f"{x} has no rows of blocks of {BLOCK}")
        sums = (*x.shape[:-1], x.shape[-1] // BLOCK)
        return Type(DType.I8, x.shape), Type(x.dtype, x.shape[:-1]), Type(DType.I32, sums)

    @staticmethod
    def ref(a: Attributes, x: Array) -> tuple[Array, Array, Array]:
        one = x.dtype.type
        most = np.abs(x).max(axis=-1, initial=0, keepdims=True)  # NaN if there is one
        fits = (most >= SMALLEST) & (most < np.inf)
        inverse = np.divide(one(HIGHEST), most, out=np.zeros_like(most), where=fits)
        known = np.where(fits, x, one(0)).astype(np.float64)  # whose products have no rounding
        q = np.rint(known * inverse).astype(np.int8)
        scale = np.where(fits, most / one(HIGHEST), np.where(most < np.inf, one(0), one(np.nan)))
        sums = q.reshape(*x.shape[:-1], -1, BLOCK).sum(axis=-1, dtype=np.int32)
        return q, scale[..., 0].astype(x.dtype), sums

    @staticmethod
    def call(node: Node) -> Call:
        (q, scale, sums), (x,) = node.outs, node.ins
        args = (q, scale, sums, x, rows(x.shape), x.shape[-1])
        return Call("whet_quantize_rows_f32", args, "quantize_rows")


class LinearDots(Op):
    """y = min(max(scale[r] * (q w') + b + add, low), high), with w as it is stored

    The first three operands are the results of `quantize_rows`.
    """

    name = "linear_dots"
    multiplies = "int8"
    differentiable = False
    floats_as_integers = True
    Attrs = LinearStored.Attrs

    @classmethod
    def fits(cls, node: Node) -> bool:
        """Whether it can stand in for this layer, but for rounding x."""
        if node.op not in (LinearStored, LinearStoredBf16):
            return False
        a = node.attrs
        return has_integers(a) and a.inputs <= DEEPEST

    @classmethod
    def emit(cls, b: Builder, node: Node, rounded: Sequence[Value]) -> Value:
        """Emit it in place of the layer, with what x was rounded to."""
        return b.emit(cls, *rounded, *node.ins[1:], name=node.out.name, **asdict(node.attrs))

    @staticmethod
    def infer(a: LinearStored.Attrs, q: Type, scale: Type, sums: Type, *weight: Type) -> Type:
        shape, blocks = q.shape[:-1], a.inputs // BLOCK
        require(a.inputs <= DEEPEST, f"{a.inputs} products may be more than an int32 holds")
        require(q == Type(DType.I8, (*shape, a.inputs)), f"{q} is not rows of {a.inputs} in int8")
        require(scale == Type(DType.F32, shape), f"{scale} is not a scale for each row of {q}")
        require(sums == Type(DType.I32, (*shape, blocks)), f"{sums} is not the sums of {q}")
        require(has_integers(a), f"rows of {a.inputs} in {a.kind} are not blocks of integers")
        return LinearStored.infer(a, Type(DType.F32, q.shape), *weight)

    @staticmethod
    def ref(
        a: LinearStored.Attrs, q: Array, scale: Array, sums: Array, data: Array, *rest: Array
    ) -> Array:
        """Every product with its sum is rounded once, as by `fma`."""
        bias, add = ends(a, rest)
        x, real = matrix(q).astype(np.float64), scale.dtype.type
        if a.kind == "rows":
            v = (x @ data.T.astype(np.float64)).astype(real) * rest[0]
        else:
            v = block_sums(a, x, matrix(sums), data, np.zeros((len(x), a.outputs), real))
        y = fma(v, scale.reshape(-1, 1), np.zeros(1, real) if bias is None else bias)
        y = y.reshape(*q.shape[:-1], a.outputs)
        return _exact.clip(y if add is None else y + add, a.low, a.high)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, len(node.ins) - 1),) if node.attrs.add else ()

    @staticmethod
    def call(node: Node) -> Call:
        (q, scale, sums, data, *rest), a = node.ins, node.attrs
        table = rest[0] if a.arrays > 1 else None
        args = (node.out, q, scale, sums, data, table, *ends(a, rest), a.low, a.high,
                math.prod(q.shape[:-1]), a.inputs, a.outputs, a.form)  # fmt: skip
        return Call("whet_linear_dots_f32", args, "dots")

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * int(node.attrs.inputs)


def has_integers(a: StoredWeight) -> bool:
    return (a.kind == "rows" or a.kind in ROUNDED) and a.inputs % BLOCK == 0


def block_sums(a: StoredWeight, x: Array, sums: Array, data: Array, v: Array) -> Array:
    """v + x w', block by block; x has the integers in float64."""
    block = ROUNDED[a.kind]
    d, m, w = block.unpacked(data.reshape(-1, block.bytes))
    d, m = (t.astype(np.float64).reshape(a.outputs, -1) for t in (d, m))
    w = w.astype(np.float64).reshape(a.outputs, -1, BLOCK)
    for k in range(a.inputs // BLOCK):
        v = fma(d[:, k], x[:, k * BLOCK : (k + 1) * BLOCK] @ w[:, k].T, v)
        if block.has_minimum:
            v = fma(m[:, k], sums[:, k, None], v)
    return v


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in the type of c. The product is exact in float64.

    The sum is rounded to float64 first: that changes one result in half a billion.
    """
    found: Array = (a.astype(np.float64) * b + c).astype(c.dtype)
    return found
