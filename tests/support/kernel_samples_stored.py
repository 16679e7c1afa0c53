"""Inputs for the kernels that read a weight as it is stored: every form, few and many rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_samples import Collector, Numbers, Sample
from whet.ir import Array
from whet.ops._blocks import BLOCKS, FORMATS, Parts, encoded
from whet.ops._common import pack

# rows, inputs, outputs: beyond a panel, a tile, a piece, and none of them whole
SHAPES = ((1, 320, 37), (2, 32, 5), (3, 288, 70), (4, 96, 40), (9, 64, 17), (13, 544, 35),
          (20, 160, 33), (70, 96, 65))  # fmt: skip
ODD = ((1, 61, 9), (3, 33, 20), (7, 130, 33), (11, 27, 9), (19, 301, 11))  # not for blocks
LONG = ((1, 512, 37), (3, 256, 20), (9, 512, 17), (20, 256, 33), (33, 768, 40))  # for q4_k
CHUNKS = (300, 544, 20)  # beyond the rows that vec/ holds at a time
DEEP = ((290, 70, 40), (5, 1, 9), CHUNKS)
KINDS = ("rows", "book", *FORMATS)


def stored(g: Numbers, kind: str, outputs: int, inputs: int, bits: int = 4) -> tuple[Array, ...]:
    """The arrays of some weight."""
    if kind == "rows":
        return g.i8(outputs, inputs), g.positive(outputs)
    if kind == "book":
        entries = 2**bits - bits // 3
        return pack(g.ids(entries, outputs, inputs), bits), g.normal(entries)
    if kind == "q4_k":
        return (long_blocks(g, outputs * inputs // Parts.size),)
    data = encoded(kind, g.normal(outputs, inputs))
    assert data is not None
    return (data,)


def long_blocks(g: Numbers, count: int) -> Array:
    """Any scales, minima and q."""
    data = g.rng.integers(0, 256, (count, Parts.bytes)).astype(np.uint8)
    data[:, :4] = (g.normal(count, 2) * 0.01).astype("<f2").view(np.uint8)
    return data.reshape(-1)


def stored_samples() -> list[Sample]:
    s = Collector()
    add_heads(s)
    for kind in KINDS:
        shapes = LONG if kind == "q4_k" else SHAPES if kind in BLOCKS else SHAPES + ODD
        for n, (rows, inputs, outputs) in enumerate(shapes):
            g = s.numbers("linear_stored")
            bits = 1 + n % 8 if kind == "book" else 0
            w = stored(g, kind, outputs, inputs, bits)
            attrs: dict[str, Any] = dict(kind=kind, bits=bits, outputs=outputs, inputs=inputs)
            x, bias, add = g.normal(rows, inputs), g.normal(outputs), g.normal(rows, outputs)
            ends: list[tuple[list[Array], dict[str, Any]]] = [
                ([], {}),
                ([bias], dict(bias=True, low=0.0)),
                ([bias, add], dict(bias=True, add=True)),
                ([add], dict(add=True, low=-0.5, high=0.5)),
            ]
            for more, end in ends[n % 2 :: 2]:
                s.add("linear_stored", x, *w, *more, **attrs, **end)
            s.add("linear_stored_dx", g.normal(rows, outputs), *w, **attrs)
            s.add("take_stored", *w, g.ids(outputs, 2, 5), **attrs)
    return s.samples


# rows, inputs, outputs, attributes: one block of classes and several, which end within one
HEADS: list[tuple[int, int, int, dict[str, Any]]] = [
    (1, 32, 5, {}),
    (5, 64, 300, dict(dx=True)),
    (37, 96, 70, dict(dx=True, rows=8, classes=17)),
    (20, 32, 41, dict(dx=True, bias=True, mean=False, classes=16)),
    (9, 64, 33, dict(dx=True, db=True, bias=True)),
]


def add_heads(s: Collector) -> None:
    for kind in KINDS:
        for n, (rows, inputs, outputs, own) in enumerate(HEADS):
            g = s.numbers("linear_cross_entropy_stored")
            inputs = Parts.size if kind == "q4_k" else inputs
            bits = 3 + n if kind == "book" else 0
            sizes: dict[str, Any] = dict(kind=kind, bits=bits, outputs=outputs, inputs=inputs)
            w = stored(g, kind, outputs, inputs, bits)
            labels = np.where(g.rng.random(rows) < n / 8, -1, g.ids(outputs, rows)).astype(np.int32)
            ins = (g.normal(rows, inputs, scale=0.3), *w, *[g.normal(outputs)] * ("bias" in own))
            s.add("linear_cross_entropy_stored", *ins, labels, ignore_index=-1, **sizes, **own)


def other_blocks(kind: str) -> Array:
    """Blocks with the corners of 16-bit floats in their scales: 0, -0, subnormal and large ones."""
    corners = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF], "<u2")
    g = Numbers(f"corners of {kind}")
    weight = encoded(kind, g.normal(8, 32))
    assert weight is not None
    data = weight.reshape(8, -1).copy()
    data[:, :2] = corners.view(np.uint8).reshape(8, 2)
    return data.reshape(-1)


def dots_samples() -> list[Sample]:
    """Rounded rows of x, and layers that multiply them."""
    s = Collector()
    for n, (rows, inputs, outputs) in enumerate((*SHAPES, CHUNKS)):
        g = s.numbers("quantize_rows")
        x = g.normal(rows, inputs, scale=10.0 ** (n - 3))
        x[rows // 2] = (0.0, np.nan, 1e-35, -np.inf)[n % 4] if n % 2 or n > 4 else x[0]
        s.add("quantize_rows", x)
        for kind in ("rows", *BLOCKS):
            g = s.numbers("linear_dots")
            w, q = stored(g, kind, outputs, inputs), g.i8(rows, inputs)
            sums = q.reshape(rows, -1, 32).sum(axis=-1, dtype=np.int32)
            attrs: dict[str, Any] = dict(kind=kind, outputs=outputs, inputs=inputs)
            bias, add = g.normal(outputs), g.normal(rows, outputs)
            ends: list[tuple[list[Array], dict[str, Any]]] = [
                ([], {}),
                ([bias], dict(bias=True, low=0.0)),
                ([bias, add], dict(bias=True, add=True)),
                ([add], dict(add=True, low=-0.5, high=0.5)),
            ]
            for more, end in ends[n % 2 :: 2]:
                s.add("linear_dots", q, g.positive(rows), sums, *w, *more, **attrs, **end)
    return s.samples


def bf16_samples() -> list[Sample]:
    s = Collector()
    for n, (rows, inputs, outputs) in enumerate((*SHAPES, *ODD, *LONG[1:3], *DEEP)):
        g = s.numbers("linear_bf16")
        x, w, dy = g.normal(rows, inputs), g.normal(outputs, inputs), g.normal(rows, outputs)
        bias, add = g.normal(outputs), g.normal(rows, outputs)
        s.add("linear_bf16", x, w, *([] if n % 3 else [bias]), bias=n % 3 == 0)
        s.add("linear_bf16", x, w, bias, add, bias=True, add=True, low=-0.5, high=0.5)
        s.add("linear_bf16_dx", dy, w)
        s.add("linear_bf16_dw", dy, x)
        for kind in KINDS:
            if kind in FORMATS and inputs % FORMATS[kind].size:
                continue
            data = stored(g, kind, outputs, inputs)
            attrs = dict(kind=kind, bits=4 * (kind == "book"), outputs=outputs, inputs=inputs)
            s.add("linear_stored_bf16", x, *data, bias, add, bias=True, add=True, **attrs)
            s.add("linear_stored_bf16_dx", dy, *data, **attrs)
    return s.samples
