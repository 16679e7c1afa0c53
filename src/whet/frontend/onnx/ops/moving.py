"""Shapes, and operators that only move numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ....ir import Array
from ..rows import Call, Value, ints, is_known, row, tensor


def axes_of(c: Call, axes: Array | None) -> list[int] | None:
    """Axes are an attribute up to opset 12, and an operand afterwards."""
    found = c.attr("axes") if axes is None else axes
    return None if found is None else ints(found)


def positive(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of a tensor with {rank} axes")
    return axis % rank if rank else 0


@row("Shape", either=(0,), from_known=True)
def shape(c: Call, x: Value) -> Array:
    return np.array(x.shape, dtype=np.int64)[slice(c.attr("start", 0), c.attr("end"))]


@row("Size", either=(0,), from_known=True)
def size(c: Call, x: Value) -> Array:
    return np.array(np.prod(x.shape), dtype=np.int64)


@row("Reshape", known=(1,))
def reshape(c: Call, x: Tensor, wanted: Array) -> Tensor:
    sizes = ints(wanted)
    if not c.flag("allowzero"):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


@row("Flatten")
def flatten(c: Call, x: Tensor) -> Tensor:
    axis = c.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    before = int(np.prod(x.shape[:axis]))
    return x.reshape(before, int(np.prod(x.shape[axis:])))


@row("Squeeze", known=(1,))
def squeeze(c: Call, x: Tensor, axes: Array | None = None) -> Tensor:
    found = axes_of(c, axes)
    gone = [i for i, n in enumerate(x.shape) if n == 1] if found is None else found
    gone = [positive(i, x.ndim) for i in gone]
    if any(x.shape[i] != 1 for i in gone):
        raise ValueError(f"axes {gone} of {tuple(x.shape)} are not all of size 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in gone])


@row("Unsqueeze", known=(1,))
def unsqueeze(c: Call, x: Tensor, axes: Array | None = None) -> Tensor:
    found = axes_of(c, axes) or []
    rank = x.ndim + len(found)
    for axis in sorted(positive(i, rank) for i in found):
        x = x.unsqueeze(axis)
    return x


@row("Transpose")
def transpose(c: Call, x: Tensor) -> Tensor:
    return x.permute(c.attr("perm") or list(range(x.ndim))[::-1])


@row("Concat")
def concat(c: Call, *values: Tensor) -> Tensor:
    return torch.cat(values, dim=c.attr("axis", 1))


@row("Expand", known=(1,))
def expand(c: Call, x: Tensor, wanted: Array) -> Tensor:
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(ints(wanted))))


@row("Tile", known=(1,))
def tile(c: Call, x: Tensor, times: Array) -> Tensor:
    return x.repeat(*ints(times))


@row("Split", known=(1,))
def split(c: Call, x: Tensor, sizes: Array | None = None) -> tuple[Tensor, ...]:
    axis, given = c.attr("axis", 0), c.attr("split") if sizes is None else sizes
    parts = c.attr("num_outputs", len(c.node.outputs))
    whole = x.shape[axis]
    if given is not None:
        return torch.split(x, ints(given), dim=axis)
    each = -(-whole // parts)
    found = [min(each, whole - i * each) for i in range(parts)]
    return torch.split(x, found, dim=axis)


@row("Slice", known=(1, 2, 3, 4))
def slice_(
    c: Call,
    x: Tensor,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Tensor:
    first = ints(c.attr("starts") if starts is None else starts)
    last = ints(c.attr("ends") if ends is None else ends)
    found = axes_of(c, axes) or list(range(len(first)))
    strides = [1] * len(first) if steps is None else ints(steps)
    for start, end, axis, step in zip(first, last, found, strides, strict=True):
        x = sliced(x, start, end, positive(axis, x.ndim), step)
    return x


def sliced(x: Tensor, start: int, end: int, axis: int, step: int) -> Tensor:
    if step == 0:
        raise ValueError("a step of 0")
    size = x.shape[axis]
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start = min(max(start + size if start < 0 else start, 0), size if step > 0 else size - 1)
    end = min(max(end + size if end < 0 else end, low), high if step > 0 else size)
    picked = range(start, end, step)
    if not picked:
        return x.narrow(axis, 0, 0)
    if step > 0:
        index = [slice(None)] * axis + [slice(start, end, step)]
        return x[tuple(index)]
    if step == -1 and len(picked) == size:
        return x.flip(axis)
    return x.index_select(axis, torch.tensor(list(picked), device=x.device))


def wrapped(index: Value, size: int) -> Tensor:
    """Indices, where negative ones count from the end."""
    if is_known(index):
        found = np.asarray(index).astype(np.int64)
        if found.size and (found.min() < -size or found.max() >= size):
            raise ValueError(f"indices from {found.min()} to {found.max()} of {size}")
        return torch.from_numpy(np.where(found < 0, found + size, found))
    found = index.long()
    return torch.where(found < 0, found + size, found)


@row("Gather", either=(1,))
def gather(c: Call, x: Tensor, index: Value) -> Tensor:
    axis = positive(c.attr("axis", 0), x.ndim)
    if is_known(index) and np.ndim(index) == 0:
        line = int(index)
        if not -x.shape[axis] <= line < x.shape[axis]:
            raise ValueError(f"index {line} of {x.shape[axis]}")
        return x.select(axis, line)
    if axis == 0 and x.ndim == 2 and not is_known(index):
        return F.embedding(wrapped_ids(c, index, x.shape[0]), x)
    at = wrapped(index, x.shape[axis])
    found = x.index_select(axis, at.reshape(-1))
    return found.reshape(*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])


def wrapped_ids(c: Call, index: Tensor, size: int) -> Tensor:
    """Ids of an input of the model are never negative; numbers that were computed may be."""
    return index.long() if c.node.inputs[1] in c.run.inputs else wrapped(index, size)


@row("GatherElements", either=(1,))
def gather_elements(c: Call, x: Tensor, index: Value) -> Tensor:
    axis = positive(c.attr("axis", 0), x.ndim)
    return torch.gather(x, axis, wrapped(index, x.shape[axis]))


@row("GatherND", either=(1,))
def gather_nd(c: Call, x: Tensor, index: Value) -> Tensor:
    batch = c.attr("batch_dims", 0)
    at: Tensor = index.long() if isinstance(index, Tensor) else tensor(np.asarray(index)).long()
    depth = at.shape[-1]
    places: list[Any] = []
    for i in range(batch):
        wanted = [1] * (at.ndim - 1)
        wanted[i] = x.shape[i]
        places.append(torch.arange(x.shape[i]).reshape(wanted))
    for i in range(depth):
        places.append(wrapped(at[..., i], x.shape[batch + i]))
    return x[tuple(torch.broadcast_tensors(*places))]


def scattered(c: Call, x: Tensor, at: Tensor, updates: Tensor, axis: int) -> Tensor:
    reduction = c.attr("reduction", "none")
    if reduction == "none":
        return torch.scatter(x, axis, at, updates)
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    return torch.scatter_reduce(x, axis, at, updates, names[reduction])


@row("ScatterElements", "Scatter", either=(1,))
def scatter_elements(c: Call, x: Tensor, index: Value, updates: Tensor) -> Tensor:
    axis = positive(c.attr("axis", 0), x.ndim)
    return scattered(c, x, wrapped(index, x.shape[axis]), updates, axis)


@row("ScatterND", either=(1,))
def scatter_nd(c: Call, x: Tensor, index: Value, updates: Tensor) -> Tensor:
    """As a scatter along one axis: that of all places that an index can name."""
    at: Tensor = index if isinstance(index, Tensor) else tensor(np.asarray(index))
    depth = at.shape[-1]
    flat = torch.zeros(at.shape[:-1], dtype=torch.int64)
    for i in range(depth):
        flat = flat * x.shape[i] + wrapped(at[..., i], x.shape[i])
    rest = int(np.prod(x.shape[depth:]))
    lines = x.reshape(-1, rest)
    rows = flat.reshape(-1, 1).expand(-1, rest)
    return scattered(c, lines, rows, updates.reshape(-1, rest), 0).reshape(x.shape)


@row("TensorScatter", either=(2,))
def tensor_scatter(c: Call, past: Tensor, new: Tensor, starts: Value = None) -> Tensor:
    axis = positive(c.attr("axis", -2), past.ndim)
    count, size = new.shape[axis], past.shape[axis]
    first = torch.zeros(past.shape[0], dtype=torch.int64) if starts is None else tensor(starts)
    at = first.reshape(-1, 1) + torch.arange(count)
    if c.attr("mode", "linear") == "circular":
        at = at % size
    wanted = [1] * past.ndim
    wanted[0], wanted[axis] = past.shape[0], count
    return torch.scatter(past, axis, at.reshape(wanted).expand(new.shape), new)


@row("OneHot", known=(1,))
def one_hot(c: Call, index: Tensor, depth: Array, values: Tensor) -> Tensor:
    size = int(np.asarray(depth).reshape(-1)[0])
    axis = positive(c.attr("axis", -1), index.ndim + 1)
    ids = index.long()
    ids = torch.where(ids < 0, ids + size, ids).unsqueeze(axis)
    wanted = [1] * (index.ndim + 1)
    wanted[axis] = size
    hit = ids == torch.arange(size).reshape(wanted)
    return torch.where(hit, values[1], values[0])


@row("Pad", known=(1, 2, 3))
def pad(
    c: Call,
    x: Tensor,
    pads: Array | None = None,
    value: Array | None = None,
    axes: Array | None = None,
) -> Tensor:
    given = ints(c.attr("pads") or c.attr("paddings") if pads is None else pads)
    number = c.attr("value", 0.0) if value is None else np.asarray(value).reshape(-1)[0].item()
    where = [positive(a, x.ndim) for a in (range(x.ndim) if axes is None else ints(axes))]
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(where):
        before[axis], after[axis] = given[i], given[i + len(where)]
    mode = c.attr("mode", "constant")
    if mode == "constant":
        sides = [side for pair in zip(before[::-1], after[::-1], strict=True) for side in pair]
        return F.pad(x, sides, value=number)
    for axis, (a, b) in enumerate(zip(before, after, strict=True)):
        x = extended(x, axis, a, b, mode)
    return x


def extended(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """More lines along an axis, copied from those that are there; fewer for negative numbers."""
    if not before and not after:
        return x
    name = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}[mode]
    lines = np.arange(x.shape[axis])[max(-before, 0) : x.shape[axis] - max(-after, 0)]
    at = np.pad(lines, (max(before, 0), max(after, 0)), mode=name)  # type: ignore[call-overload]
    return x.index_select(axis, torch.from_numpy(at))


@row("CenterCropPad", known=(1,))
def center_crop_pad(c: Call, x: Tensor, wanted: Array) -> Tensor:
    axes = c.attr("axes") or list(range(x.ndim))
    for axis, size in zip(axes, ints(wanted), strict=True):
        axis = positive(axis, x.ndim)
        now = x.shape[axis]
        if size < now:
            x = x.narrow(axis, (now - size) // 2, size)
        elif size > now:
            before = (size - now) // 2
            sides = [0, 0] * (x.ndim - 1 - axis) + [before, size - now - before]
            x = F.pad(x, sides)
    return x


@row("DepthToSpace")
def depth_to_space(c: Call, x: Tensor) -> Tensor:
    b, (n, depth, high, wide) = c.attr("blocksize"), x.shape
    if c.attr("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, b)
    parts = x.reshape(n, b, b, depth // (b * b), high, wide).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, depth // (b * b), high * b, wide * b)


@row("SpaceToDepth")
def space_to_depth(c: Call, x: Tensor) -> Tensor:
    b, (n, depth, high, wide) = c.attr("blocksize"), x.shape
    if c.attr("mode", "DCR") == "CRD":
        return F.pixel_unshuffle(x, b)
    parts = x.reshape(n, depth, high // b, b, wide // b, b).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, depth * b * b, high // b, wide // b)


@row("ReverseSequence", known=(1,))
def reverse_sequence(c: Call, x: Tensor, lengths: Array) -> Tensor:
    time, batch = c.attr("time_axis", 0), c.attr("batch_axis", 1)
    index = np.tile(np.arange(x.shape[time]), (x.shape[batch], 1))
    for i, length in enumerate(ints(lengths)):
        index[i, :length] = index[i, :length][::-1]
    wanted = [1] * x.ndim
    wanted[batch], wanted[time] = index.shape
    turned = index if batch < time else index.T
    return torch.gather(x, time, torch.from_numpy(turned.copy()).reshape(wanted).expand(x.shape))


@row("Compress", known=(1,))
def compress(c: Call, x: Tensor, condition: Array) -> Tensor:
    axis, picked = c.attr("axis"), np.flatnonzero(np.asarray(condition))
    flat = x.reshape(-1) if axis is None else x
    return flat.index_select(0 if axis is None else axis, torch.from_numpy(picked))


@row("ArrayFeatureExtractor", domain="ai.onnx.ml", known=(1,))
def array_feature_extractor(c: Call, x: Tensor, index: Array) -> Tensor:
    found = x.index_select(-1, torch.tensor(ints(index)))
    return found.reshape(1, -1) if x.ndim == 1 else found


@row("Trilu", known=(1,))
def trilu(c: Call, x: Tensor, k: Array | None = None) -> Tensor:
    by = 0 if k is None else int(np.asarray(k).reshape(-1)[0])
    return torch.triu(x, by) if c.flag("upper", 1) else torch.tril(x, by)


@row("EyeLike", either=(0,))
def eye_like(c: Call, x: Value) -> Array:
    if c.attr("dtype") not in (None, 1) or x.dtype != torch.float32:
        c.refuse(f"type {c.attr('dtype')}")
    rows, columns = x.shape
    return np.eye(int(rows), int(columns), k=c.attr("k", 0), dtype=np.float32)
