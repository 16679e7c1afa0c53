"""Operands of attention."""

from __future__ import annotations

import numpy as np

from kernel_samples import Collector, Sample
from whet import ops


def attention_samples() -> list[Sample]:
    s = Collector()
    for family in (attention, odd_masks, parts, cached):
        family(s)
    return s.samples


# b, l, s, h, g, d, e: blocks of 32 queries and 128 keys that are whole, not whole, several and only
# one number wide
HEADS = [(2, 5, 7, 4, 2, 3, 6), (1, 64, 128, 2, 2, 16, 16), (2, 70, 130, 3, 1, 33, 20),
         (1, 1, 9, 2, 1, 8, 8), (1, 9, 2, 1, 1, 1, 1), (1, 150, 67, 2, 1, 24, 7),
         (1, 33, 260, 2, 1, 64, 32)]  # fmt: skip


def attention(s: Collector) -> None:
    """Every shape, causal or not, and with a mask that is broadcast along any of its axes."""
    for i, (b, queries, keys, h, g, d, e) in enumerate(HEADS):
        for causal in (False, True)[: min(queries, 2)]:  # one key alone has no slope
            n = s.numbers("attention")
            operands = n.normal(b, queries, h, d), n.normal(b, keys, g, d), n.normal(b, keys, g, e)
            wide = enumerate((b, h, queries))
            mask = n.normal(*(1 if i >> k & 1 else size for k, size in wide), keys)
            mask[n.rng.random(mask.shape) < 0.3] = -np.inf
            s.add("attention", *operands, scale=d**-0.5, causal=causal)
            s.add("attention", *operands, mask, scale=0.3, causal=causal)


def parts(s: Collector) -> None:
    """Each has some of the nine blocks of queries that share keys, and some of the results."""
    for parts in (2, 5):
        n = s.numbers("attention_dx")
        q, k, v, dy = (n.normal(2, 70, heads, 8) for heads in (6, 2, 2, 6))
        found = ops.attention.Attention.ref(ops.attention.Scores(causal=True), q, k, v)
        s.add("attention_dx", dy, q, k, v, *found, causal=True, parts=parts)
        s.add("attention_dx", dy, q, k, v, *found, causal=True, parts=parts, dq=False, dk=False)
        s.add("attention_dx", dy, q, k, v, *found, causal=True, parts=parts, dv=False)
        s.add("attention_dx", dy, q, k, v, *found, causal=True, dk=False, dv=False)


def odd_masks(s: Collector) -> None:
    """Queries that see nothing, and that see all keys equally badly; scores far from 0."""
    n = s.numbers("attention")
    q, k, v = n.normal(2, 5, 2, 4), n.normal(2, 90, 2, 4), n.normal(2, 90, 2, 4)
    none = np.zeros((2, 1, 5, 90), np.float32)
    none[0, :, 1:3], none[1, :, :, 20:], none[1, :, 4] = -np.inf, -np.inf, -np.inf
    lowest = np.where(none == 0, none, np.finfo(np.float32).min)
    for mask in (none, none[:, :, 1:2], lowest, np.zeros_like(none)):
        s.add("attention", q, k, v, np.ascontiguousarray(mask))
    s.add("attention", q * 8, k, v, none)


def cached(s: Collector) -> None:
    """The first rows, the last ones, and some between; keys that rise and fall."""
    for n, keys, h, g, d, e, position in [
        (1, 1, 1, 1, 1, 1, 0), (1, 9, 4, 2, 5, 3, 0), (1, 70, 3, 1, 16, 20, 69),
        (4, 9, 2, 2, 8, 8, 5), (7, 40, 6, 2, 33, 17, 11),
    ]:  # fmt: skip
        r = s.numbers("attention_cached")
        at = np.array(position, np.int32)
        q, k, v = r.normal(n, h, d, scale=3), r.normal(keys, g, d), r.normal(keys, g, e)
        s.add("attention_cached", q, k, v, at, scale=d**-0.5)
        s.add("put_rows", k, r.normal(n, g, d), at)
        s.add("rows_at", k, at, rows=n)
        s.add("rows_at", np.arange(3 * keys, dtype=np.int32).reshape(keys, 3), at, rows=n)
