"""Dropout and random numbers from a counter: the same bits from the same seed, everywhere.

The generator is Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011). Its state is two integers, (seed, step); element i of dropout site s in that step
uses word i % 4 of block (i / 4, s, step, 0) under key (seed, 0). Nothing is kept for the backward
pass: the mask is computed again.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Type
from ._common import d, infer_as_is, over_first, require, require_f32


def philox(seed: int, counter: tuple[Array, int, int, int]) -> Array:
    """Blocks of four 32-bit words for an array of first counters."""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.broadcast_to(np.asarray(k, np.uint64), counter[0].shape) & mask for k in counter]
    key = [seed & 0xFFFFFFFF, 0]
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]),
            p1 & mask,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]),
            p0 & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=-1).astype(np.uint32)


def random_words(rng: Array, site: int, n: int) -> Array:
    """The n words of a site in the step the generator is at."""
    seed, step = (int(k) & 0xFFFFFFFF for k in rng)
    blocks = np.arange(-(-n // 4), dtype=np.uint64)
    return philox(seed, (blocks, site, step, 0)).reshape(-1)[:n]


class Dropout(Op):
    """y = x / (1 - p) where a random word is at least p * 2^32, else 0"""

    name = "dropout"

    class Attrs(Attributes):
        p: float = 0.5
        site: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type, rng: Type) -> Type:
        require_f32(x)
        require(rng == Type(DType.I32, (2,)), f"the generator state is i32[2], not {rng}")
        require(0 <= a.p <= 1, f"p = {a.p} is not a probability")
        return x

    @staticmethod
    def ref(a: Attrs, x: Array, rng: Array) -> Array:
        keep = random_words(rng, a.site, x.size).reshape(x.shape) >= threshold(a.p)
        scale = x.dtype.type(0 if a.p == 1 else 1 / (1 - a.p))
        return np.where(keep, x * scale, 0)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        x, rng = node.ins
        return b.emit(Dropout, douts[0], rng, name=d(x), p=node.attrs.p, site=node.attrs.site), None

    @staticmethod
    def call(node: Node) -> Call:
        a = node.attrs
        scale = 0.0 if a.p == 1 else 1 / (1 - a.p)
        # The threshold is a 32-bit pattern; two's complement carries it through an int32.
        bits = int(np.array(threshold(a.p), np.uint32).view(np.int32))
        args = (node.out, *node.ins, node.out.type.elements, a.site, bits, scale)
        return Call("whet_dropout_f32", args, "dropout")

    inplace = staticmethod(over_first)


def threshold(p: float) -> int:
    """Words below this are dropped; p = 1 keeps at most one word in 2^32, whose scale is 0."""
    return min(round(p * 2**32), 2**32 - 1)


class Uniform(Op):
    """y = random numbers, evenly spread over [0, 1): the upper 24 bits of each word / 2^24"""

    name = "uniform"
    differentiable = False

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()
        site: int = 0

    @staticmethod
    def infer(a: Attrs, rng: Type) -> Type:
        require(rng == Type(DType.I32, (2,)), f"the generator state is i32[2], not {rng}")
        return Type(DType.F32, a.shape)

    @staticmethod
    def ref(a: Attrs, rng: Array) -> Array:
        words = random_words(rng, a.site, math.prod(a.shape))
        return ((words >> np.uint32(8)) * np.float64(2**-24)).reshape(a.shape)

    @staticmethod
    def call(node: Node) -> Call:
        args = (node.out, *node.ins, node.out.type.elements, node.attrs.site)
        return Call("whet_uniform_f32", args, "dropout")


class RngNext(Op):
    """next = (seed, step + 1)"""

    name = "rng_next"
    differentiable = False

    infer = staticmethod(infer_as_is)

    @staticmethod
    def ref(a: Attributes, rng: Array) -> Array:
        return rng + np.array([0, 1], np.int32)

    @staticmethod
    def call(node: Node) -> Call:
        return Call("whet_rng_next", (node.out, *node.ins), "dropout")

    inplace = staticmethod(over_first)
