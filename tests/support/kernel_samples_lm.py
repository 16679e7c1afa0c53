"""Inputs for the kernels of language models."""

from __future__ import annotations

import numpy as np

from kernel_samples import Collector, Sample


def lm_samples() -> list[Sample]:
    s = Collector()
    for family in (norms, gates, rotary):
        family(s)
    return s.samples


def norms(s: Collector) -> None:
    """Less than a tile, a tile, more than a chunk of tiles, more rows than a chunk, and zeros."""
    for rows, c in [(1, 1), (3, 5), (4, 16), (2, 37), (200, 19), (2, 2100)]:
        g = s.numbers("rms_norm")
        s.add("rms_norm", g.normal(rows, c, shift=2), g.normal(c), eps=0.1)
    s.add("rms_norm", np.zeros((2, 8), np.float32), g.normal(8))


def gates(s: Collector) -> None:
    for name in ("swiglu", "geglu", "geglu_tanh"):
        for size, scale in (((5, 31), 1.0), ((2, 3, 67), 4.0), ((1,), 30.0)):
            g = s.numbers(name)
            s.add(name, g.normal(*size, scale=scale), g.normal(*size))


def rotary(s: Collector) -> None:
    """Of all channels or some, with tables by position, by sample, by both and by none."""
    for x, table in [
        ((2, 5, 3, 16), (1, 5, 1, 8)), ((2, 5, 3, 34), (1, 5, 1, 17)),
        ((2, 3, 5, 12), (1, 1, 5, 4)), ((2, 5, 3, 7), (2, 5, 1, 2)), ((4, 2), (4, 1)),
        ((2, 3, 5, 6), (2, 1, 1, 3)), ((2, 3, 6), (1, 1, 3)), ((64,), (32,)),
    ]:  # fmt: skip
        g = s.numbers("rotary")
        for back in (False, True):
            s.add("rotary", g.normal(*x), g.normal(*table), g.normal(*table), back=back)
