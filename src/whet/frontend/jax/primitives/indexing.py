"""Parts of an array at places given by an index."""

from __future__ import annotations

from math import nan, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..package import jax
from ..rows import Call, Value, is_known, row
from .moving import at


@row("gather")
def gather(call: Call, x: Value, indices: Value) -> Tensor:
    """Lines of a table, or any parts at places that are known."""
    x = call.tensor(x)
    if is_known(indices):
        return at_known_places(call, x, indices)
    how, sizes = call.params["dimension_numbers"], tuple(call.params["slice_sizes"])
    if how.operand_batching_dims:
        call.refuse("an index of its own for each sample that depends on an input")
    axis = axis_of_lines(x, how, sizes)
    if axis is None:
        call.refuse("parts of lines", "jnp.take(table, ids, axis=...)")
    ids, last = call.tensor(indices)[..., 0], x.shape[axis] - 1
    mode = call.params["mode"].name
    if mode not in ("FILL_OR_DROP", "CLIP", "PROMISE_IN_BOUNDS"):
        call.refuse(f"the mode {mode}")
    if mode == "PROMISE_IN_BOUNDS":
        return lines(x, axis, ids, how.offset_dims, call.shape())
    inside = torch.where(ids < 0, 0, torch.where(ids > last, last, ids))
    found = lines(x, axis, inside, how.offset_dims, call.shape())
    if mode == "CLIP":
        return found
    flags = inside == ids
    return torch.where(spread(flags, how.offset_dims, found.ndim), found, filling(call, found))


def axis_of_lines(x: Tensor, how: Any, sizes: tuple[int, ...]) -> int | None:
    """The axis along which whole lines are taken."""
    if len(how.start_index_map) != 1:
        return None
    [axis] = how.start_index_map
    whole = all(size == x.shape[i] for i, size in enumerate(sizes) if i != axis)
    return axis if tuple(how.collapsed_slice_dims) == (axis,) and whole else None


def lines(
    x: Tensor, axis: int, ids: Tensor, offsets: tuple[int, ...], shape: tuple[int, ...]
) -> Tensor:
    first = x.movedim(axis, 0)
    rest = first.shape[1:]
    found = F.embedding(ids.long(), first.reshape(first.shape[0], prod(rest)))
    found = found.reshape(*ids.shape, *rest)
    places = [i for i in range(len(shape)) if i not in offsets] + list(offsets)
    return found.permute([places.index(i) for i in range(len(shape))])


def spread(flags: Tensor, offsets: tuple[int, ...], rank: int) -> Tensor:
    """One flag for each index, with an axis of size 1 for each axis of the lines."""
    sizes = iter(flags.shape)
    return flags.reshape([1 if i in offsets else next(sizes) for i in range(rank)])


def filling(call: Call, found: Tensor) -> Any:
    """What an index outside gives."""
    given = call.params["fill_value"]
    if given is not None:
        return given
    if found.is_floating_point():
        return nan
    if found.dtype == torch.bool:
        return True
    limits = torch.iinfo(found.dtype)
    return limits.min if limits.min else limits.max


def at_known_places(call: Call, x: Tensor, indices: Value) -> Tensor:
    """JAX says which element comes from where, or -1 for none."""
    how, sizes = call.params["dimension_numbers"], tuple(call.params["slice_sizes"])
    places = np.arange(x.numel(), dtype=np.int32).reshape(x.shape)
    params = {**call.params, "fill_value": -1}
    found = np.asarray(call.equation.primitive.bind(places, indices, **params))
    inside = bool((found >= 0).all())
    axis = axis_of_lines(x, how, sizes)
    ids = np.asarray(indices)
    if inside and ids.ndim == 1:
        starts = [0] * x.ndim
        for i, start in zip(how.start_index_map, ids, strict=True):
            starts[i] = int(start)
        return at(x, starts, sizes).reshape(call.shape())
    if inside and axis is not None and not how.operand_batching_dims:
        rows = call.tensor(ids[..., 0].clip(0, x.shape[axis] - 1))
        return lines(x, axis, rows, how.offset_dims, call.shape())
    taken = elements(call, x, found)
    return taken if inside else torch.where(call.tensor(found >= 0), taken, filling(call, taken))


def elements(call: Call, x: Tensor, places: np.ndarray[Any, Any]) -> Tensor:
    """By their number in the whole array; the first one where the number is negative."""
    flat = call.tensor(np.maximum(places, 0).ravel())
    return torch.index_select(x.reshape(-1), 0, flat).reshape(places.shape)


@row("scatter", "scatter-add")
def scatter(call: Call, x: Value, indices: Value, updates: Value) -> Tensor:
    """Elements at known places are replaced, or increased."""
    if not is_known(indices):
        call.refuse("the index depends on an input", "an index of known numbers")
    old, new = call.tensor(x), call.tensor(updates)
    source, most = sources(call, indices)
    added = call.equation.primitive.name == "scatter-add"
    if added and most > 1:
        call.refuse("a place is increased more than once", "an index without repetitions")
    if not new.numel():
        return old
    taken = elements(call, new, source)
    return torch.where(call.tensor(source >= 0), old + taken if added else taken, old)


def sources(call: Call, indices: Value) -> tuple[np.ndarray[Any, Any], int]:
    """The number of the update that each element becomes, or -1, and the most that meet there."""
    lax, params = jax().lax, call.params
    shapes = [tuple(v.aval.shape) for v in call.equation.invars]
    how = dict(dimension_numbers=params["dimension_numbers"], mode=params["mode"])
    numbers = np.arange(prod(shapes[2]), dtype=np.int32).reshape(shapes[2])
    found = lax.scatter(np.full(shapes[0], -1, np.int32), indices, numbers, **how)
    zeros, ones = np.zeros(shapes[0], np.int32), np.ones(shapes[2], np.int32)
    count = np.asarray(lax.scatter_add(zeros, indices, ones, **how))
    return np.asarray(found), int(count.max(initial=0))
