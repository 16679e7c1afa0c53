"""Means, and what moves numbers without changing them."""

from __future__ import annotations

from torch.nn import functional as F

from ..rows import Given, Made, plain, row


@row("MEAN")
def mean(given: Given) -> Made:
    axes = tuple(int(n) % len(given.needed(0).shape) for n in given.constant(1).reshape(-1))
    keeps = bool(given.options("ReducerOptions").KeepDims())
    return plain(given, "mean", lambda x: x.mean(axes, keepdim=keeps))


@row("RESHAPE")
def reshape(given: Given) -> Made:
    """To the sizes of the result; the first is that of a batch where it is one before and after."""
    shape, before = list(given.result.shape), given.needed(0).shape
    first = -1 if before[:1] == tuple(shape[:1]) else shape[0]
    return plain(given, "view", lambda x: x.reshape(first, *shape[1:]))


@row("PAD")
def pad(given: Given) -> Made:
    widths = given.constant(1).reshape(-1, 2)[::-1].reshape(-1).tolist()
    return plain(given, "pad", lambda x: F.pad(x, widths))
