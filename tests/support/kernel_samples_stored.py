"""Inputs for the kernels that read a weight as it is stored: every form, few and many rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_samples import Collector, Numbers, Sample
from whet.ir import Array
from whet.ops._blocks import BLOCKS, encoded
from whet.ops._common import pack

# rows, inputs, outputs: beyond a panel, a tile, a piece, and none of them whole
SHAPES = ((1, 320, 37), (2, 32, 5), (3, 288, 70), (4, 96, 40), (9, 64, 17), (13, 544, 35),
          (20, 160, 33), (70, 96, 65))  # fmt: skip
ODD = ((1, 61, 9), (3, 33, 20), (7, 130, 33), (11, 27, 9), (19, 301, 11))  # not for blocks
KINDS = ("rows", "book", *BLOCKS)


def stored(g: Numbers, kind: str, outputs: int, inputs: int, bits: int = 4) -> tuple[Array, ...]:
    """The arrays of some weight."""
    if kind == "rows":
        return g.i8(outputs, inputs), g.positive(outputs)
    if kind == "book":
        entries = 2**bits - bits // 3
        return pack(g.ids(entries, outputs, inputs), bits), g.normal(entries)
    data = encoded(kind, g.normal(outputs, inputs))
    assert data is not None
    return (data,)


def stored_samples() -> list[Sample]:
    s = Collector()
    for kind in KINDS:
        shapes = SHAPES if kind in BLOCKS else SHAPES + ODD
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
    for n, (rows, inputs, outputs) in enumerate(SHAPES):
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
    for n, (rows, inputs, outputs) in enumerate((*SHAPES, *ODD, (290, 70, 40))):
        g = s.numbers("linear_bf16")
        x, w, dy = g.normal(rows, inputs), g.normal(outputs, inputs), g.normal(rows, outputs)
        bias, add = g.normal(outputs), g.normal(rows, outputs)
        s.add("linear_bf16", x, w, *([] if n % 3 else [bias]), bias=n % 3 == 0)
        s.add("linear_bf16", x, w, bias, add, bias=True, add=True, low=-0.5, high=0.5)
        s.add("linear_bf16_dx", dy, w)
        s.add("linear_bf16_dw", dy, x)
        for kind in KINDS if inputs % 32 == 0 else ("rows", "book"):
            data = stored(g, kind, outputs, inputs)
            attrs = dict(kind=kind, bits=4 * (kind == "book"), outputs=outputs, inputs=inputs)
            s.add("linear_stored_bf16", x, *data, bias, add, bias=True, add=True, **attrs)
            s.add("linear_stored_bf16_dx", dy, *data, **attrs)
    return s.samples
