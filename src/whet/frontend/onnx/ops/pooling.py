"""Pooling over windows and over whole pictures."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, row
from .convolution import flat, sides
from .reducing import root

MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEAN_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
LONGEST = 10_000  # slices of a sum


class Window(NamedTuple):
    kernel: list[int]
    strides: list[int]
    steps: list[int]
    pairs: list[tuple[int, int]]  # padding before and after
    sizes: list[int]  # of the result


def window(c: Call, x: Tensor) -> Window:
    kernel = c.attr("kernel_shape")
    rank = len(kernel)
    strides, steps = c.attr("strides") or [1] * rank, c.attr("dilations") or [1] * rank
    pairs = sides(c, list(x.shape[2:]), kernel, strides, steps)
    found = []
    up = c.flag("ceil_mode") and c.attr("auto_pad") != "VALID"
    for n, k, s, d, (a, b) in zip(x.shape[2:], kernel, strides, steps, pairs, strict=True):
        span = n + a + b - (k - 1) * d - 1
        count = (math.ceil(span / s) if up else span // s) + 1
        if up and (count - 1) * s >= n + a:  # a window must begin in the picture or before it
            count -= 1
        found.append(count)
    if min(found) < 1:
        c.refuse(f"a window of {kernel} is larger than the picture")
    return Window(kernel, strides, steps, pairs, found)


def complete(x: Tensor, w: Window, value: float) -> Tensor:
    """The picture with its padding, and as much more as the last windows take."""
    every = []
    for n, k, s, d, (a, _), count in zip(
        x.shape[2:], w.kernel, w.strides, w.steps, w.pairs, w.sizes, strict=True
    ):
        every.append((a, (count - 1) * s + (k - 1) * d + 1 - n - a))
    return F.pad(x, flat(every), value=value) if any(map(any, every)) else x


def even(x: Tensor, w: Window) -> list[int] | None:
    """PyTorch's padding, if it can say the same."""
    fits = all(
        (n + a + b - (k - 1) * d - 1) // s + 1 == count and a == b and 2 * a <= k
        for n, k, s, d, (a, b), count in zip(
            x.shape[2:], w.kernel, w.strides, w.steps, w.pairs, w.sizes, strict=True
        )
    )
    return [a for a, _ in w.pairs] if fits else None


@row("MaxPool")
def max_pool(c: Call, x: Tensor) -> tuple[Tensor, Tensor] | Tensor:
    w = window(c, x)
    if len(w.kernel) not in MAX_POOLS:
        c.refuse(f"{len(w.kernel)} axes")
    kind = x.dtype
    values = x if x.is_floating_point() else x.float()
    if c.wants(1):
        return with_indices(c, values, w, kind)
    padding = even(x, w)
    if padding is None:
        values, padding = complete(values, w, -math.inf), [0] * len(w.kernel)
    return MAX_POOLS[len(w.kernel)](values, w.kernel, w.strides, padding, w.steps).to(kind)


def with_indices(c: Call, x: Tensor, w: Window, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Where each maximum is: its place in the whole tensor."""
    rank = len(w.kernel)
    whole = complete(x, w, -math.inf)
    pool = getattr(F, f"max_pool{rank}d")
    y, at = pool(whole, w.kernel, w.strides, 0, w.steps, return_indices=True)
    places, left = [], at
    for size in list(whole.shape[2:])[::-1]:
        places.append(left % size)
        left = left // size
    order = list(range(rank))
    if c.flag("storage_order"):
        order = order[::-1]
    index = torch.zeros_like(at)
    for axis in order:
        index = index * x.shape[2 + axis] + (places[::-1][axis] - w.pairs[axis][0])
    lines = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * rank)
    return y.to(kind), index + lines * math.prod(x.shape[2:])


@row("AveragePool")
def average_pool(c: Call, x: Tensor) -> Tensor:
    w = window(c, x)
    rank, padding, counts_pads = len(w.kernel), even(x, w), c.flag("count_include_pad")
    if rank not in MEAN_POOLS:
        c.refuse(f"{rank} axes")
    if padding is not None and w.steps == [1] * rank:
        return MEAN_POOLS[rank](x, w.kernel, w.strides, padding, False, counts_pads)
    total = summed(complete(x, w, 0.0), w)
    ones = torch.ones_like(x[:1, :1])
    if counts_pads:
        ones = F.pad(ones, flat(w.pairs), value=1.0)
        w = w._replace(pairs=[(0, 0)] * rank)
    return total / summed(complete(ones, w, 0.0), w)


def summed(x: Tensor, w: Window) -> Tensor:
    """The sum of each window: a sum of slices, one for each place in it."""
    for axis, (k, s, d, count) in enumerate(
        zip(w.kernel, w.strides, w.steps, w.sizes, strict=True)
    ):
        if k > LONGEST:
            raise ValueError(f"a sum of {k:,} slices")
        parts = []
        for i in range(k):
            index = [slice(None)] * (axis + 2)
            index.append(slice(i * d, i * d + (count - 1) * s + 1, s))
            parts.append(x[tuple(index)])
        x = sum(parts[1:], parts[0])
    return x


@row("LpPool")
def lp_pool(c: Call, x: Tensor) -> Tensor:
    p, w = c.attr("p", 2), window(c, x)
    return root(summed(complete(x.abs().pow(p), w, 0.0), w), p)


@row("GlobalAveragePool")
def global_average_pool(c: Call, x: Tensor) -> Tensor:
    return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)


@row("GlobalMaxPool")
def global_max_pool(c: Call, x: Tensor) -> Tensor:
    return x.amax(dim=tuple(range(2, x.ndim)), keepdim=True)


@row("GlobalLpPool")
def global_lp_pool(c: Call, x: Tensor) -> Tensor:
    p = c.attr("p", 2)
    return root(x.abs().pow(p).sum(dim=tuple(range(2, x.ndim)), keepdim=True), p)


@row("MaxUnpool", known=(2,))
def max_unpool(c: Call, x: Tensor, index: Tensor, wanted=None) -> Tensor:  # type: ignore[no-untyped-def]
    """Indices are places in the tensor that was pooled, which may be smaller than the result."""
    kernel = c.attr("kernel_shape")
    strides, pads = c.attr("strides") or [1] * len(kernel), c.attr("pads") or [0] * 2 * len(kernel)
    rank = len(kernel)
    pooled = [
        (n - 1) * s - pads[i] - pads[i + rank] + k
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    sizes = [*x.shape[:2], *pooled] if wanted is None else [int(n) for n in wanted]
    y = torch.zeros(math.prod(x.shape[:2]) * math.prod(pooled), dtype=x.dtype)
    y = y.scatter(0, index.reshape(-1), x.reshape(-1)).reshape(*x.shape[:2], *pooled)
    return F.pad(
        y,
        [n for size, now in zip(sizes[::-1], y.shape[::-1], strict=True) for n in (0, size - now)],
    )
