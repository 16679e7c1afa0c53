"""Means, and what moves numbers without changing them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ..rows import Given, Made, plain, row


@row("MEAN")
def mean(given: Given) -> Made:
    rank = len(given.computed(0).shape)
    axes = tuple(int(n) for n in given.integers(1).reshape(-1))
    if not all(-rank <= axis < rank for axis in axes):
        raise given.refused(f"its axes are {list(axes[:8])}", f"its operand has {rank}")
    keeps = bool(given.options("ReducerOptions").KeepDims())
    return plain(given, "mean", lambda x: x.mean(axes, keepdim=keeps))


@row("RESHAPE")
def reshape(given: Given) -> Made:
    """To the sizes of the result; the first grows with the batch."""
    given.computed(0)
    shape = given.result.shape
    wanted = (-1, *shape[1:]) if shape else ()
    return plain(given, "view", lambda x: x.reshape(wanted))


@row("PAD")
def pad(given: Given) -> Made:
    rank, widths = len(given.computed(0).shape), given.integers(1)
    if widths.shape != (rank, 2) or (widths < 0).any():
        raise given.refused(f"its widths are no {rank} pairs of numbers from 0 on")
    flat = widths[::-1].reshape(-1).tolist()

    def padded(x: Tensor) -> Tensor:
        return F.pad(x, flat)

    return plain(given, "pad", padded)
