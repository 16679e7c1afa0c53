"""Primitives that move elements."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, Value, is_known, row, uniform


@row("broadcast_in_dim")
def broadcast_in_dim(call: Call, x: Tensor, *sizes: Value) -> Tensor:
    shape, kept = call.shape(), call.params["broadcast_dimensions"]
    view = [1] * len(shape)
    for size, axis in zip(x.shape, kept, strict=True):
        view[axis] = size
    return x.reshape(view).expand(shape)


@row("reshape")
def reshape(call: Call, x: Tensor, *sizes: Value) -> Tensor:
    if call.params.get("dimensions") is not None:
        x = x.permute(call.params["dimensions"])
    return x.reshape(call.shape())


@row("squeeze", "expand_dims")
def squeeze(call: Call, x: Tensor) -> Tensor:
    return x.reshape(call.shape())


@row("transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(tuple(call.params["permutation"]))


@row("concatenate")
def concatenate(call: Call, *parts: Value) -> Tensor:
    return torch.cat([call.tensor(part) for part in parts], call.params["dimension"])


@row("split")
def split(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, list(map(int, call.params["sizes"])), call.params["axis"])


@row("tile")
def tile(call: Call, x: Tensor) -> Tensor:
    return x.repeat(tuple(call.params["reps"]))


@row("rev")
def rev(call: Call, x: Tensor) -> Tensor:
    return torch.flip(x, tuple(call.params["dimensions"]))


@row("slice")
def slice_(call: Call, x: Tensor) -> Tensor:
    starts, ends = call.params["start_indices"], call.params["limit_indices"]
    strides = call.params["strides"] or (1,) * x.ndim
    return part_of(x, starts, ends, strides)


def part_of(
    x: Tensor, starts: tuple[int, ...], ends: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor:
    for axis, (start, end, stride) in enumerate(zip(starts, ends, strides, strict=True)):
        if (start, end, stride) != (0, x.shape[axis], 1):
            x = x[(slice(None),) * axis + (slice(start, end, stride),)]
    return x


@row("dynamic_slice")
def dynamic_slice(call: Call, x: Value, *starts: Value) -> Tensor:
    if not all(map(is_known, starts)):
        call.refuse("where it begins depends on an input", "a slice of known numbers")
    return at(call.tensor(x), [int(s) for s in starts], call.params["slice_sizes"])


def at(x: Tensor, starts: list[int], sizes: tuple[int, ...]) -> Tensor:
    """The part that begins there; JAX moves it back inside where it reaches over the end."""
    inside = [
        max(0, min(start, whole - size))
        for start, size, whole in zip(starts, sizes, x.shape, strict=True)
    ]
    ends = tuple(start + size for start, size in zip(inside, sizes, strict=True))
    return part_of(x, tuple(inside), ends, (1,) * x.ndim)


@row("dynamic_update_slice")
def dynamic_update_slice(call: Call, x: Value, part: Value, *starts: Value) -> Tensor:
    if not all(map(is_known, starts)):
        call.refuse("where it begins depends on an input", "an index of known numbers")
    whole, new = call.tensor(x), call.tensor(part)
    pads: list[int] = []
    for start, size, length in zip(starts, new.shape, whole.shape, strict=True):
        first = max(0, min(int(start), length - size))
        pads = [first, length - size - first, *pads]
    inside = F.pad(torch.ones(new.shape, dtype=torch.bool), pads)
    return torch.where(inside, F.pad(new, pads), whole)


@row("pad")
def pad(call: Call, x: Tensor, value: Value) -> Tensor:
    number = uniform(value)
    widths = call.params["padding_config"]
    if number is None:
        call.refuse("the number beside depends on an input")
    if any(inside for _, _, inside in widths):
        call.refuse("zeros between elements")
    pads = [n for low, high, _ in reversed(widths) for n in (low, high)]
    return F.pad(x, pads, value=float(number))
