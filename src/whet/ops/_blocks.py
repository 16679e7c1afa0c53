"""Frozen weights in few bits: int8 with a scale for each row, and the blocks of GGUF files.

A block has 32 neighbouring elements of a row. It begins with a 16-bit float d, and `q4_1` has
another, m. An element is d * q (`q8_0`, with 8 bits for q), d * (q - 8) (`q4_0`, with 4) or
d * q + m (`q4_1`, with 4), in f32. Rounding puts the extremes of a block at the ends of the range
of q, so that what was rounded is rounded to the same blocks again: floats lose nothing.

`q4_k` has blocks of 256, whose parts of 32 are d * scale * q - e * minimum, with 4 bits for q, 6
for scale and minimum, and 16-bit floats d and e. whet does not round to it, but keeps what a file
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ..ir import Array

BLOCK = 32
AT_ONCE = 1 << 14  # blocks; what is in between takes a few MB
FIRST = 64  # blocks that are looked at before, as most weights are in no such form at all
LOST = 1e-3  # of the norm of a weight: more must not vanish because d underflows
F = np.float32
HALF_INF = np.float16(np.inf)


@dataclass(frozen=True)
class Block:
    """One of the formats: how it is laid out, and how ggml's reference code rounds to it."""

    form: int  # in whet_kernels_stored.h
    bits: int
    lowest: int  # q as a number
    highest: int
    has_minimum: bool = False

    size: ClassVar[int] = BLOCK  # elements

    @property
    def bytes(self) -> int:
        return 2 + 2 * self.has_minimum + BLOCK * self.bits // 8

    def scales(self, x: Array) -> tuple[Array, Array]:
        """d and m of each row of x, before they are rounded to 16 bits."""
        if self.has_minimum:
            low = x.min(axis=1)
            return (x.max(axis=1) - low) / F(self.highest), low
        most = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
        d = np.abs(most) / F(self.highest) if self.bits == 8 else most / F(self.lowest)
        return d, np.zeros_like(d)

    def nearest(self, x: Array, d: Array, m: Array) -> Array:
        """q of each element. Halves are rounded upwards, of 8 bits away from 0."""
        inverse = np.divide(F(1), d, out=np.zeros_like(d), where=d != 0)[:, None]
        scaled = ((x - m[:, None]) * inverse).astype(np.float64)
        if self.bits == 8:
            q = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
        else:
            q = np.floor((scaled + (0.5 - self.lowest)).astype(F)) + self.lowest
        return np.clip(q, self.lowest, self.highest).astype(np.int8)

    def packed(self, d: Array, m: Array, q: Array) -> Array:
        """The bytes of blocks, one row each; d and m are of 16 bits."""
        words: list[Array] = [d.astype("<f2").view(np.uint8).reshape(-1, 2)]
        if self.has_minimum:
            words.append(m.astype("<f2").view(np.uint8).reshape(-1, 2))
        if self.bits == 8:
            words.append(q.view(np.uint8))
        else:
            nibbles = (q - self.lowest).astype(np.uint8)
            words.append(nibbles[:, : BLOCK // 2] | nibbles[:, BLOCK // 2 :] << 4)
        return np.concatenate(words, axis=1)

    def floats(self, d: Array, m: Array, q: Array) -> Array:
        """The elements, in f32; d and m are of 16 bits."""
        product = q.astype(F) * d.astype(F)[:, None]
        return product + m.astype(F)[:, None] if self.has_minimum else product

    def unpacked(self, blocks: Array) -> tuple[Array, Array, Array]:
        """d, m and q of the bytes of blocks, one row each."""
        d = np.ascontiguousarray(blocks[:, :2]).view("<f2")[:, 0]
        m = np.ascontiguousarray(blocks[:, 2:4]).view("<f2")[:, 0]
        rest = blocks[:, 4 if self.has_minimum else 2 :]
        if self.bits == 8:
            return d, m, rest.view(np.int8)
        nibbles = np.concatenate([rest & 15, rest >> 4], axis=1)
        return d, m, nibbles.astype(np.int8) + np.int8(self.lowest)

    def numbers(self, blocks: Array) -> Array:
        """The elements of the bytes of blocks, one row each."""
        return self.floats(*self.unpacked(blocks))

    def guesses(self, x: Array) -> Iterator[tuple[Array, Array]]:
        """Other d and m that may make up x: the extremes may lie within the range of q."""
        d, m = self.scales(x)
        if self.has_minimum:
            for steps in range(self.highest, 0, -1):
                near = (d * F(self.highest) / F(steps)).astype(np.float16)
                for one in (near, np.nextafter(near, HALF_INF), np.nextafter(near, -HALF_INF)):
                    for first in range(self.highest - steps + 1):
                        yield one, m - F(first) * one.astype(F)
        else:
            most = np.abs(d) * F(self.highest if self.bits == 8 else -self.lowest)
            for steps in range(-self.lowest, 0, -1):
                yield most / F(steps), m
                yield -most / F(steps), m


@dataclass(frozen=True)
class Parts:
    """`q4_k`: d, e, twelve bytes of scales and minima, and the low and the high halves of 32 bytes
    for every two parts."""

    form: int = 13
    size: ClassVar[int] = 256
    bytes: ClassVar[int] = 144

    def numbers(self, blocks: Array) -> Array:
        head = np.ascontiguousarray(blocks[:, :4]).view("<f2").astype(F)
        first, second, last = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
        scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=1)
        minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
        pairs = blocks[:, 16:].reshape(-1, 4, 1, BLOCK)
        q = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, BLOCK)
        scale, low = head[:, :1] * scales.astype(F), head[:, 1:] * minima.astype(F)
        found: Array = scale[:, :, None] * q.astype(F) - low[:, :, None]
        return found.reshape(-1, self.size)


ROUNDED = {
    "q8_0": Block(form=10, bits=8, lowest=-128, highest=127),
    "q4_0": Block(form=11, bits=4, lowest=-8, highest=7),
    "q4_1": Block(form=12, bits=4, lowest=0, highest=15, has_minimum=True),
}
BLOCKS = tuple(ROUNDED)  # that whet rounds to
FORMATS: dict[str, Block | Parts] = {**ROUNDED, "q4_k": Parts()}  # that layers read


def in_blocks(weight: Array) -> bool:
    """Whether it has rows of whole blocks."""
    return weight.ndim == 2 and weight.shape[1] % BLOCK == 0


def encoded(kind: str, weight: Array) -> Array | None:
    """The bytes of its blocks, as ggml rounds; None if 16 bits cannot hold a scale."""
    block, lost = ROUNDED[kind], 0.0

    def part(x: Array) -> Array | None:
        nonlocal lost
        d, m = block.scales(x)
        with np.errstate(over="ignore"):
            short, low = d.astype(np.float16), m.astype(np.float16)
        if not (np.all(np.isfinite(short)) and np.all(np.isfinite(low))):
            return None
        gone = x[(short == 0) & (d != 0)].astype(np.float64)
        lost += float((gone * gone).sum())
        return block.packed(short, low, block.nearest(x, d, m))

    found = by_parts(weight, part)
    return found if found is None or lost <= (LOST * np.linalg.norm(weight)) ** 2 else None


def held(kind: str, weight: Array) -> Array | None:
    """The bytes of blocks that make up this very weight, or None."""
    block = ROUNDED[kind]

    def part(x: Array) -> Array | None:
        wrong = np.ones(len(x), bool)
        blocks = np.zeros((len(x), block.bytes), np.uint8)

        def fit(d: Array, m: Array, short: Array, low: Array) -> None:
            q = block.nearest(x[wrong], d, m)
            right = (block.floats(short, low, q) == x[wrong]).all(axis=1)
            at = np.flatnonzero(wrong)[right]
            blocks[at] = block.packed(short[right], low[right], q[right])
            wrong[at] = False

        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            d, m = block.scales(x)
            fit(d, m, d.astype(np.float16), m.astype(np.float16))
            for d, m in block.guesses(x) if wrong.any() else ():
                short, low = d[wrong].astype(np.float16), m[wrong].astype(np.float16)
                fit(short.astype(F), low.astype(F), short, low)
                if not wrong.any():
                    break
        return None if wrong.any() else blocks

    return by_parts(weight, part)


def by_parts(weight: Array, part: Callable[[Array], Array | None]) -> Array | None:
    """The bytes that `part` gives for some blocks of a weight after the other."""
    blocks = np.ascontiguousarray(weight, F).reshape(-1, BLOCK)
    edges = [0, *range(FIRST, len(blocks), AT_ONCE), len(blocks)]
    found = []
    for first, end in pairwise(edges):
        some = part(blocks[first:end])
        if some is None:
            return None
        found.append(some)
    return np.concatenate(found).reshape(-1)


def decoded(kind: str, data: Array, shape: tuple[int, ...]) -> Array:
    """The weight in f32."""
    block = FORMATS[kind]
    weight = np.empty(shape, F)
    rows, blocks = weight.reshape(-1, block.size), data.reshape(-1, block.bytes)
    for first in range(0, len(rows), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        rows[part] = block.numbers(blocks[part])
    return weight
