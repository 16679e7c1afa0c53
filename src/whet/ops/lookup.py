"""Weights that are stored as a codebook and indices into it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Type, Workspace
from ._common import d, packed, require, require_dtype, require_f32, row_of_channels, unpack
from .linear import Linear, matrix, rows, sum_rows
from .stored import LinearStoredDx

MOST_BITS = 8


class Lookup(Op):
    """y = codebook[index]; indices are packed, `bits` each"""

    name = "lookup"
    expands = True

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()
        bits: int = 4
        fixed: int = -1  # an entry whose gradient is 0

    @staticmethod
    def infer(a: Attrs, book: Type, index: Type) -> Type:
        require_dtype(book, DType.F32, DType.I8)
        require_codebook(book, index, a.shape, a.bits)
        require(a.fixed < book.elements, f"{book} has no entry {a.fixed}")
        return Type(book.dtype, a.shape)

    @staticmethod
    def ref(a: Attrs, book: Array, index: Array) -> Array:
        found: Array = book[unpack(index, a.bits, a.shape)]
        return found

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (book, index), a, dy = node.ins, node.attrs, douts[0]
        assert dy is not None
        sizes = {"entries": book.type.elements, "bits": a.bits, "fixed": a.fixed}
        return b.emit(LookupDcodebook, dy, index, name=d(book), **sizes), None

    @staticmethod
    def call(node: Node) -> Call:
        (book, index), bits, n = node.ins, node.attrs.bits, node.out.type.elements
        if book.type.dtype is DType.I8:
            return Call("whet_lookup_i8", (node.out, book, index, n, bits), "lookup")
        args = (node.out, book, index, None, 1, 1, n, bits)
        return Call("whet_lookup_f32", args, "lookup")


class LookupScaled(Op):
    """y = codebook[index] * scale[c]; channels are the first axis, or the last one"""

    name = "lookup_scaled"
    differentiable = False

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()
        bits: int = 4
        last: bool = False

    @staticmethod
    def infer(a: Attrs, book: Type, index: Type, scale: Type) -> Type:
        require_f32(book, scale)
        require_codebook(book, index, a.shape, a.bits)
        channels = a.shape[-1 if a.last else 0]
        require(scale.shape == (channels,), f"{scale} is not a scale of {channels} channels")
        return Type(DType.F32, a.shape)

    @staticmethod
    def ref(a: Attrs, book: Array, index: Array, scale: Array) -> Array:
        found: Array = book[unpack(index, a.bits, a.shape)]
        return found * (scale if a.last else scale.reshape(-1, *(1,) * (found.ndim - 1)))

    @staticmethod
    def call(node: Node) -> Call:
        (book, index, scale), a = node.ins, node.attrs
        channels, n = scale.type.elements, node.out.type.elements
        inner = 1 if a.last else n // channels
        args = (node.out, book, index, scale, n // (channels * inner), channels, inner, a.bits)
        return Call("whet_lookup_f32", args, "lookup")


def require_codebook(book: Type, index: Type, shape: tuple[int, ...], bits: int) -> None:
    require(1 <= bits <= MOST_BITS, f"indices have 1 to {MOST_BITS} bits, got {bits}")
    fits = book.rank == 1 and book.elements <= 2**bits
    require(fits, f"{book} is not a codebook for {bits} bits")
    require(index == packed(math.prod(shape), bits), f"{index} does not index {shape}")


class Entries(Attributes):
    entries: int = 1
    bits: int = 4
    fixed: int = -1


def sum_of_parts(a: Entries, parts: Iterable[tuple[Array, Array]]) -> Array:
    """Sums by entry: of the terms of each part, in order, and then of the parts."""
    total = np.zeros(a.entries, np.float32)
    for places, terms in parts:
        part = np.zeros(a.entries, np.float32)
        np.add.at(part, places, terms)
        total += part
    if a.fixed >= 0:
        total[a.fixed] = 0
    return total


def one_of_each(node: Node) -> int:
    return int(node.attrs.entries)


class LookupDcodebook(Op):
    """dcodebook[k] = sum of dy where index = k, and 0 for k = fixed"""

    name = "lookup_dcodebook"
    differentiable = False
    Attrs = Entries

    @staticmethod
    def infer(a: Entries, dy: Type, index: Type) -> Type:
        require_f32(dy)
        require(index == packed(dy.elements, a.bits), f"{index} does not index {dy}")
        require(a.fixed < a.entries <= 2**a.bits, f"{a.entries} entries need more bits")
        return Type(DType.F32, (a.entries,))

    @staticmethod
    def ref(a: Entries, dy: Array, index: Array) -> Array:
        return sums(a, unpack(index, a.bits, (dy.size,)), dy.reshape(-1))

    @staticmethod
    def exact(a: Entries, dy: Array, index: Array) -> Array:
        places, flat = unpack(index, a.bits, (dy.size,)), dy.reshape(-1)
        chunks = range(0, dy.size, 1024)
        return sum_of_parts(a, ((places[i : i + 1024], flat[i : i + 1024]) for i in chunks))

    workspace = staticmethod(one_of_each)

    @staticmethod
    def call(node: Node) -> Call:
        (dy, index), a = node.ins, node.attrs
        args = (node.out, dy, index, dy.type.elements, a.entries, a.fixed, a.bits,
                Workspace(a.entries))  # fmt: skip
        return Call("whet_lookup_dcodebook_f32", args, "lookup")


def sums(a: Entries, places: Array, terms: Array) -> Array:
    """Of the terms for each entry."""
    found = np.bincount(places, terms.astype(np.float64), a.entries)
    if a.fixed >= 0:
        found[a.fixed] = 0
    return found.astype(terms.dtype)


class LinearShared(Op):
    """y[r, o] = b[o] + sum_i x[r, i] * codebook[index[o, i]]; the bias is optional"""

    name = "linear_shared"
    row_axis = staticmethod(row_of_channels)

    class Attrs(Attributes):
        outputs: int = 0
        bits: int = 4
        fixed: int = -1  # an entry whose gradient is 0

    @staticmethod
    def infer(a: Attrs, x: Type, book: Type, index: Type, b: Type | None = None) -> Type:
        require_f32(x, book)
        require(x.rank >= 1, "needs x of rank >= 1")
        require_codebook(book, index, (a.outputs, x.shape[-1]), a.bits)
        require(a.fixed < book.elements, f"{book} has no entry {a.fixed}")
        require(b is None or b.shape == (a.outputs,), "the bias must have one entry per output")
        return Type(x.dtype, (*x.shape[:-1], a.outputs))

    @staticmethod
    def ref(a: Attrs, x: Array, book: Array, index: Array, b: Array | None = None) -> Array:
        y = x @ book[unpack(index, a.bits, (a.outputs, x.shape[-1]))].T
        return y if b is None else y + b

    @staticmethod
    def exact(a: Attrs, x: Array, book: Array, index: Array, b: Array | None = None) -> Array:
        return Linear.exact(a, x, book[unpack(index, a.bits, (a.outputs, x.shape[-1]))], b)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (x, book, index, *bias), a = douts, node.ins, node.attrs
        assert dy is not None
        dx = dbook = None
        if wants[0]:
            weight = {"kind": "book", "outputs": a.outputs, "inputs": x.shape[-1], "bits": a.bits}
            dx = b.emit(LinearStoredDx, dy, index, book, name=d(x), **weight)
        if wants[1]:
            sizes = {"entries": book.type.elements, "bits": a.bits, "fixed": a.fixed}
            dbook = b.emit(LinearSharedDcodebook, dy, x, index, name=d(book), **sizes)
        return dx, dbook, None, *(sum_rows(b, dy, v) if wants[3] else None for v in bias)

    @staticmethod
    def call(node: Node) -> Call:
        (x, book, index, *bias), a = node.ins, node.attrs
        ends = (bias[0] if bias else None, None, -math.inf, math.inf)
        args = (node.out, x, index, book, *ends, rows(x.shape), x.shape[-1], a.outputs, a.bits)
        return Call("whet_linear_stored_f32", args, "stored")

    @staticmethod
    def macs(node: Node) -> int:
        return node.ins[0].type.elements * int(node.attrs.outputs)


class LinearSharedDcodebook(Op):
    """dcodebook[k] = sum of dy[r, o] * x[r, i] where index[o, i] = k, and 0 for k = fixed"""

    name = "linear_shared_dcodebook"
    differentiable = False
    Attrs = Entries

    @staticmethod
    def infer(a: Entries, dy: Type, x: Type, index: Type) -> Type:
        require_f32(dy, x)
        require(dy.shape[:-1] == x.shape[:-1], f"{dy} does not meet {x}")
        elements = dy.shape[-1] * x.shape[-1]
        require(index == packed(elements, a.bits), f"{index} does not fit {dy} and {x}")
        require(a.fixed < a.entries <= 2**a.bits, f"{a.entries} entries need more bits")
        return Type(DType.F32, (a.entries,))

    @staticmethod
    def ref(a: Entries, dy: Array, x: Array, index: Array) -> Array:
        dense = matrix(dy).T @ matrix(x)
        return sums(a, unpack(index, a.bits, (dense.size,)), dense.reshape(-1))

    @staticmethod
    def exact(a: Entries, dy: Array, x: Array, index: Array) -> Array:
        places = unpack(index, a.bits, (dy.shape[-1], x.shape[-1]))
        columns = zip(matrix(dy).T, places, strict=True)
        return sum_of_parts(
            a,
            (
                (np.repeat(place, len(column)), (matrix(x).T * column).reshape(-1))
                for column, place in columns
            ),
        )

    workspace = staticmethod(one_of_each)

    @staticmethod
    def call(node: Node) -> Call:
        (dy, x, index), a = node.ins, node.attrs
        sizes = (rows(dy.shape), x.shape[-1], dy.shape[-1], a.entries, a.fixed, a.bits)
        args = (node.out, dy, x, index, *sizes, Workspace(a.entries))
        return Call("whet_linear_shared_dcodebook_f32", args, "lookup")

    @staticmethod
    def macs(node: Node) -> int:
        return node.ins[0].type.elements * node.ins[1].shape[-1]
