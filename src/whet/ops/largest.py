"""The largest numbers of each sample, kept as a short row and a bit for each place."""

from __future__ import annotations

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Type
from ._common import d, pack, packed, require, require_bits, require_f32, unpack


class Keep(Attributes):
    keep: int = 1  # elements of each sample


class PickLargest(Op):
    """values, bits = the `keep` elements of each sample that are furthest from 0, in their order

    Of equals the first are taken; NaN is further than anything.
    """

    name = "pick_largest"
    Attrs = Keep

    @staticmethod
    def infer(a: Keep, x: Type) -> tuple[Type, Type]:
        require_f32(x)
        require(x.rank > 1, f"{x} has no samples")
        each = x.elements // x.shape[0]
        require(0 < a.keep <= each, f"cannot keep {a.keep} of {each}")
        return Type(DType.F32, (x.shape[0], a.keep)), packed(x.elements, 1)

    @staticmethod
    def ref(a: Keep, x: Array) -> tuple[Array, Array]:
        flat = x.reshape(len(x), -1)
        size = np.where(np.isnan(flat), np.inf, np.abs(flat))
        order = np.argsort(-size, axis=1, kind="stable")
        index = np.sort(order[:, : a.keep], axis=1)
        kept = np.zeros(flat.shape, bool)
        np.put_along_axis(kept, index, True, axis=1)
        return np.take_along_axis(flat, index, axis=1), pack(kept, 1)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (x,), dvalues = node.ins, douts[0]
        assert dvalues is not None
        return (b.emit(Spread, dvalues, node.outs[1], shape=x.shape, name=d(x)),)

    @staticmethod
    def call(node: Node) -> Call:
        x, (values, bits) = node.ins[0], node.outs
        n = x.shape[0]
        args = (values, bits, x, n, x.type.elements // n, node.attrs.keep)
        return Call("whet_pick_largest_f32", args, "largest")


class Pick(Op):
    """values = the elements whose bit is set, in their order"""

    name = "pick"
    Attrs = Keep

    @staticmethod
    def infer(a: Keep, x: Type, bits: Type) -> Type:
        require_f32(x)
        require_bits(bits, x)
        return Type(DType.F32, (x.shape[0], a.keep))

    @staticmethod
    def ref(a: Keep, x: Array, bits: Array) -> Array:
        return x[unpack(bits, 1, x.shape).astype(bool)].reshape(len(x), a.keep)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (x, bits), dvalues = node.ins, douts[0]
        assert dvalues is not None
        return b.emit(Spread, dvalues, bits, shape=x.shape, name=d(x)), None

    @staticmethod
    def call(node: Node) -> Call:
        x, bits = node.ins
        return Call("whet_pick_f32", (node.out, x, bits, x.type.elements), "largest")


class Spread(Op):
    """y = the next of the values where the bit is set, else 0"""

    name = "spread"
    expands = True

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()

    @staticmethod
    def infer(a: Attrs, values: Type, bits: Type) -> Type:
        require_f32(values)
        y = Type(DType.F32, a.shape)
        require_bits(bits, y)
        return y

    @staticmethod
    def ref(a: Attrs, values: Array, bits: Array) -> Array:
        y = np.zeros(a.shape, values.dtype)
        y[unpack(bits, 1, a.shape).astype(bool)] = values.reshape(-1)
        return y

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (values, bits), dy = node.ins, douts[0]
        assert dy is not None
        return b.emit(Pick, dy, bits, keep=values.shape[1], name=d(values)), None

    @staticmethod
    def call(node: Node) -> Call:
        values, bits = node.ins
        args = (node.out, values, bits, node.out.type.elements)
        return Call("whet_spread_f32", args, "largest")
