"""Reductions, softmax and its like, sums along an axis, and the largest values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ....ir import Array
from ..rows import Call, row
from .moving import axes_of, positive


def root(x: Tensor, p: int = 2) -> Tensor:
    """The p-th root of what is not negative; its gradient at 0 is 0, not infinite."""
    if p == 1:
        return x
    none = x == 0
    some = torch.where(none, torch.ones_like(x), x)
    return torch.where(none, torch.zeros_like(x), some.sqrt() if p == 2 else some.pow(1 / p))


def log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.logsumexp(x, axes, keepdim=keep)


def products(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def extreme(pick: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of truth values, too."""

    def compute(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        if x.dtype == torch.bool:
            return pick(x.to(torch.uint8), axes, keep).bool()
        return pick(x, axes, keep)

    return compute


REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep, dtype=x.dtype),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMax": extreme(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "ReduceMin": extreme(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "ReduceProd": products,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep, dtype=x.dtype),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep, dtype=x.dtype),
}  # fmt: skip


def reduction(compute: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    def reduce(c: Call, x: Tensor, axes: Array | None = None) -> Tensor:
        found = axes_of(c, axes) or []
        if not found and c.flag("noop_with_empty_axes"):
            return element(c, x)
        found = [positive(i, x.ndim) for i in found] or list(range(x.ndim))
        if not x.ndim:
            return compute(x.reshape(1), [0], False)
        return compute(x, found, c.flag("keepdims", 1))

    def element(c: Call, x: Tensor) -> Tensor:
        """With no axis, every element is a group of its own."""
        if c.node.op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
            return x
        return compute(x.unsqueeze(-1), [x.ndim], False)

    return reduce


for name, function in REDUCTIONS.items():
    row(name, known=(1,))(reduction(function))


def along(c: Call, x: Tensor, compute: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Up to opset 12, all axes from the given one on are one."""
    if c.version >= 13:
        return compute(x, c.attr("axis", -1))
    axis = positive(c.attr("axis", 1), x.ndim)
    if axis == x.ndim - 1 or x.shape[axis + 1 :].numel() == 1:
        return compute(x, axis)
    return compute(x.flatten(axis), axis).reshape(x.shape)


@row("Softmax", from_known=True)  # the reference knows the newest form only
def softmax(c: Call, x: Tensor) -> Tensor:
    return along(c, x, lambda x, axis: F.softmax(x, axis))


@row("LogSoftmax", from_known=True)  # the reference knows the newest form only
def log_softmax(c: Call, x: Tensor) -> Tensor:
    return along(c, x, lambda x, axis: F.log_softmax(x, axis))


@row("Hardmax", from_known=True)  # the reference knows the newest form only
def hardmax(c: Call, x: Tensor) -> Tensor:
    def compute(x: Tensor, axis: int) -> Tensor:
        at = x.argmax(axis, keepdim=True)
        return torch.zeros_like(x).scatter(axis, at, 1.0)

    return along(c, x, compute)


def position(c: Call, x: Tensor, pick: Callable[..., Tensor]) -> Tensor:
    axis, keep = positive(c.attr("axis", 0), x.ndim), c.flag("keepdims", 1)
    if not c.flag("select_last_index"):
        return pick(x, axis, keepdim=keep)
    return x.shape[axis] - 1 - pick(x.flip(axis), axis, keepdim=keep)


@row("ArgMax")
def argmax(c: Call, x: Tensor) -> Tensor:
    return position(c, x, torch.argmax)


@row("ArgMin")
def argmin(c: Call, x: Tensor) -> Tensor:
    return position(c, x, torch.argmin)


@row("TopK", known=(1,))
def top_k(c: Call, x: Tensor, k: Array | None = None) -> tuple[Tensor, Tensor]:
    count = int(c.attr("k") if k is None else np.asarray(k).reshape(-1)[0])
    axis = c.attr("axis", -1)
    order = torch.sort(x, dim=axis, descending=c.flag("largest", 1), stable=True)
    return order.values.narrow(axis, 0, count), order.indices.narrow(axis, 0, count)


def running(
    c: Call, x: Tensor, axis: Array, compute: Callable[..., Tensor], first: float
) -> Tensor:
    at = positive(int(np.asarray(axis).reshape(-1)[0]), x.ndim)
    x = x.flip(at) if c.flag("reverse") else x
    y = compute(x, at)
    if c.flag("exclusive"):
        start = torch.full_like(y.narrow(at, 0, 1), first)
        y = torch.cat([start, y.narrow(at, 0, y.shape[at] - 1)], dim=at)
    return y.flip(at) if c.flag("reverse") else y


@row("CumSum", known=(1,))
def cumsum(c: Call, x: Tensor, axis: Array) -> Tensor:
    return running(c, x, axis, lambda x, at: x.cumsum(at, dtype=x.dtype), 0)


@row("CumProd", known=(1,))
def cumprod(c: Call, x: Tensor, axis: Array) -> Tensor:
    return running(c, x, axis, lambda x, at: x.cumprod(at, dtype=x.dtype), 1)
