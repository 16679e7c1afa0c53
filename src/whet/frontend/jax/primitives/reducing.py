"""Primitives that reduce axes, or windows of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, row, type_of


@row("reduce_sum")
def reduce_sum(call: Call, x: Tensor) -> Tensor:
    axes = tuple(call.params["axes"])
    return x.sum(axes).to(call.dtype()) if axes else x


@row("reduce_max")
def reduce_max(call: Call, x: Tensor) -> Tensor:
    return torch.amax(x, tuple(call.params["axes"]))


@row("reduce_min")
def reduce_min(call: Call, x: Tensor) -> Tensor:
    return torch.amin(x, tuple(call.params["axes"]))


@row("reduce_prod")
def reduce_prod(call: Call, x: Tensor) -> Tensor:
    for axis in sorted(call.params["axes"], reverse=True):
        x = x.prod(axis)
    return x.to(call.dtype())


@row("reduce_and", "reduce_or")
def reduce_flags(call: Call, x: Tensor) -> Tensor:
    every = call.equation.primitive.name == "reduce_and"
    if x.dtype != torch.bool:
        call.refuse("the bits of integers", "a condition, such as x != 0")
    for axis in sorted(call.params["axes"], reverse=True):
        x = x.all(axis) if every else x.any(axis)
    return x


@row("argmax", "argmin")
def argmax(call: Call, x: Tensor) -> Tensor:
    compute = torch.argmax if call.equation.primitive.name == "argmax" else torch.argmin
    [axis] = call.params["axes"]
    return compute(x, axis).to(type_of(call.params["index_dtype"], call.real))


@row("cumsum")
def cumsum(call: Call, x: Tensor) -> Tensor:
    axis = call.params["axis"]
    if call.params["reverse"]:
        return x.flip(axis).cumsum(axis).flip(axis).to(call.dtype())
    return x.cumsum(axis).to(call.dtype())


POOLS: dict[str, tuple[Callable[..., Tensor], ...]] = {
    "reduce_window_max": (F.max_pool1d, F.max_pool2d, F.max_pool3d),
    "reduce_window_sum": (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
}


@row("reduce_window_max", "reduce_window_sum")
def window(call: Call, x: Tensor) -> Tensor:
    """Pooling over the axes whose windows are larger than 1, whichever those are."""
    name, params = call.equation.primitive.name, call.params
    sizes, strides, pads = (
        tuple(params[key]) for key in ("window_dimensions", "window_strides", "padding")
    )
    ones = (1,) * x.ndim
    if any(tuple(params[key] or ones) != ones for key in ("base_dilation", "window_dilation")):
        call.refuse("windows with holes")
    pooled = [i for i in range(x.ndim) if (sizes[i], strides[i], tuple(pads[i])) != (1, 1, (0, 0))]
    others = [i for i in range(x.ndim) if i not in pooled]
    if not pooled:
        return x
    if not others or len(pooled) > 3:
        call.refuse(f"windows over {len(pooled)} of {x.ndim} axes")
    order = [*others, *pooled]
    turned = x.permute(order)
    around = [n for i in reversed(pooled) for n in pads[i]]
    if any(around):
        turned = F.pad(turned, around, value=lowest(x) if name == "reduce_window_max" else 0)
    size, stride = ([n[i] for i in pooled] for n in (sizes, strides))
    if not x.is_floating_point():
        found = of_integers(name, turned, size, stride)
        return found.to(x.dtype).permute([order.index(i) for i in range(x.ndim)])
    kept = turned.shape[: len(others)]
    flat = turned.reshape(kept[0], -1, *turned.shape[len(others) :])
    found = POOLS[name][len(pooled) - 1](flat, size, stride)
    if name == "reduce_window_sum":
        for i in pooled:
            found = found * sizes[i]
    found = found.reshape(*kept, *found.shape[2:])
    return found.permute([order.index(i) for i in range(x.ndim)])


def of_integers(name: str, x: Tensor, sizes: list[int], strides: list[int]) -> Tensor:
    """Over the last axes, one after the other; the pools of PyTorch take floats only."""
    first = x.ndim - len(sizes)
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        windows = x.unfold(first + i, size, stride)
        x = windows.amax(-1) if name == "reduce_window_max" else windows.sum(-1)
    return x


def lowest(x: Tensor) -> float:
    """What a maximum leaves as it is."""
    return -inf if x.is_floating_point() else torch.iinfo(x.dtype).min
