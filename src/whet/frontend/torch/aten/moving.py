"""Operators that move elements: views, slices, joins, padding, indexing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ....ir import Array, DType, Op
from ....ops.binary import Add, Gt, Mul
from ....ops.reduce import Expand
from ....ops.shape import Concat, Pad, Slice, Take, TakeAlong, TakeDx
from ...model import Tensor
from ..importer import Importer, Operand, Unsupported, aten
from .elementwise import binary, cast, real, truth, where

Ints = tuple[int, ...]


@aten("view.default", "_unsafe_view.default", "view_copy.default")
def view(m: Importer, x: Tensor, shape: Ints) -> Tensor:
    known = math.prod(n for n in shape if n != -1)
    sizes = tuple(math.prod(x.shape) // known if n == -1 else int(n) for n in shape)
    return m.arranger.view(x, sizes)


@aten("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(m: Importer, x: Tensor, dims: int | Ints | None = None) -> Tensor:
    listed = range(x.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    drop = {d % x.rank for d in listed if x.rank and x.shape[d] == 1}
    return m.arranger.view(x, tuple(n for a, n in enumerate(x.shape) if a not in drop))


@aten("unsqueeze.default")
def unsqueeze(m: Importer, x: Tensor, dim: int) -> Tensor:
    dim %= x.rank + 1
    return m.arranger.view(x, (*x.shape[:dim], 1, *x.shape[dim:]))


@aten("permute.default")
def permute(m: Importer, x: Tensor, dims: Ints) -> Tensor:
    return m.arranger.permute(x, tuple(d % x.rank for d in dims))


@aten("transpose.int")
def transpose(m: Importer, x: Tensor, a: int, b: int) -> Tensor:
    dims = list(range(x.rank))
    if x.rank:
        dims[a], dims[b] = dims[b], dims[a]
    return m.arranger.permute(x, tuple(dims))


@aten("t.default")
def t(m: Importer, x: Tensor) -> Tensor:
    return m.arranger.permute(x, tuple(reversed(range(x.rank))))


@aten("clone.default", "alias.default")
def same(m: Importer, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


@aten("_assert_tensor_metadata.default")
def nothing(m: Importer, *_: Any, **__: Any) -> None:
    return None


@aten("expand.default")
def expand(m: Importer, x: Tensor, sizes: Ints, **_: Any) -> Tensor:
    lead = len(sizes) - x.rank
    full = m.arranger.view(x, (1,) * lead + x.shape)
    shape = tuple(old if n == -1 else n for old, n in zip(full.shape, sizes, strict=True))
    if shape == full.shape:
        return full
    return m.emit(Expand, full.value, order=full.order, shape=tuple(shape[a] for a in full.order))


@aten("broadcast_tensors.default")
def broadcast_tensors(m: Importer, operands: tuple[Operand, ...]) -> tuple[Tensor, ...]:
    """`F.mse_loss` and similar losses call it for any shapes."""
    tensors = [m.tensor(x) for x in operands]
    shape = tuple(torch.broadcast_shapes(*(t.shape for t in tensors)))
    return tuple(expand(m, t, shape) for t in tensors)


@aten("copy.default")
def copy(m: Importer, x: Operand, source: Operand, *_: Any) -> Tensor:
    return expand(m, m.tensor(source), tuple(m.tensor(x).shape))


@aten("repeat.default")
def repeat(m: Importer, x: Tensor, repeats: Ints) -> Tensor:
    """A new axis before each repeated one, expanded and merged."""
    lead = len(repeats) - x.rank
    sizes = (1,) * lead + x.shape
    split = tuple(n for size in sizes for n in (1, size))
    wide = tuple(n for r, size in zip(repeats, sizes, strict=True) for n in (r, size))
    y = expand(m, m.arranger.view(x, split), wide)
    return m.arranger.view(y, tuple(r * n for r, n in zip(repeats, sizes, strict=True)))


# Slices --------------------------------------------------------------------------------------


def piece(m: Importer, x: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    if (start, stop, step) == (0, x.shape[dim], 1):
        return x
    if start >= stop:  # empty tensors are constants, which only `cat` takes
        shape = (*x.shape[:dim], 0, *x.shape[dim + 1 :])
        return torch.empty(shape)  # type: ignore[return-value]
    attrs = dict(axis=x.stored(dim), start=start, stop=stop, step=step)
    return m.emit(Slice, x.value, order=x.order, **attrs)


@aten("slice.Tensor")
def slice_(
    m: Importer, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    dim %= x.rank
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    return piece(m, x, dim, first, max(first, last), step)


@aten("select.int")
def select(m: Importer, x: Tensor, dim: int, index: int) -> Tensor:
    dim %= x.rank
    index %= x.shape[dim]
    y = piece(m, x, dim, index, index + 1)
    return m.arranger.view(y, (*y.shape[:dim], *y.shape[dim + 1 :]))


@aten("split.Tensor", "split_with_sizes.default")
def split(m: Importer, x: Tensor, sizes: int | Ints, dim: int = 0) -> tuple[Tensor, ...]:
    dim %= x.rank
    n = x.shape[dim]
    if isinstance(sizes, int):
        sizes = tuple(min(sizes, n - i) for i in range(0, n, sizes))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return tuple(piece(m, x, dim, e - s, e) for s, e in zip(sizes, ends, strict=True))


@aten("unbind.int")
def unbind(m: Importer, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(select(m, x, dim, i) for i in range(x.shape[dim]))


@aten("slice_scatter.default")
def slice_scatter(
    m: Importer, x: Operand, source: Operand, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Tensor:  # fmt: skip
    base = m.tensor(x)
    dim %= base.rank
    first, last, step = slice(start, end, step).indices(base.shape[dim])
    if step != 1:
        raise Unsupported("writing to a strided slice of a tensor")
    inner = expand(m, m.tensor(source), (*base.shape[:dim], last - first, *base.shape[dim + 1 :]))
    parts = [piece(m, base, dim, 0, first)] if first else []
    parts.append(inner)
    parts += [piece(m, base, dim, last, base.shape[dim])] if last < base.shape[dim] else []
    return cat(m, parts, dim)


@aten("select_scatter.default")
def select_scatter(m: Importer, x: Operand, source: Operand, dim: int, index: int) -> Tensor:
    rank = m.tensor(x).rank
    index %= m.tensor(x).shape[dim]
    return slice_scatter(m, x, unsqueeze(m, m.tensor(source), dim % rank), dim, index, index + 1)


# Joins ---------------------------------------------------------------------------------------


@aten("cat.default")
def cat(m: Importer, parts: Any, dim: int = 0) -> Tensor:
    kept = [x for x in parts if math.prod(x.shape) > 0]
    leader = next((x for x in kept if isinstance(x, Tensor)), None) or m.tensor(kept[0])
    values = [m.stored(x, leader.order) for x in kept]
    if len(values) == 1:
        return Tensor(values[0], leader.order)
    return m.emit(Concat, *values, order=leader.order, axis=leader.stored(dim))


@aten("stack.default")
def stack(m: Importer, parts: Any, dim: int = 0) -> Tensor:
    rank = m.tensor(parts[0]).rank + 1
    return cat(m, [unsqueeze(m, m.tensor(x), dim % rank) for x in parts], dim % rank)


# Padding and indexing ------------------------------------------------------------------------


@aten("pad.default")
def pad(m: Importer, x: Tensor, pads: Ints, mode: str = "constant", value: Any = None) -> Tensor:
    if mode == "constant":
        return constant_pad(m, x, pads, value or 0.0)
    for i in range(len(pads) // 2):
        axis = x.rank - 1 - i
        low, high = pads[2 * i], pads[2 * i + 1]
        if low or high:
            places = np.arange(x.shape[axis])
            if mode == "circular":  # wraps after cropping; other modes still see what is cropped
                places = cropped(places, low, high)
            widths = (max(low, 0), max(high, 0))
            index = np.pad(places, widths, mode=NUMPY_MODES[mode])
            if mode != "circular":
                index = cropped(index, low, high)
            x = take(m, x, axis, torch.from_numpy(index))
    return x


def cropped(places: Array, low: int, high: int) -> Array:
    """Negative padding crops."""
    return places[max(-low, 0) : len(places) - max(-high, 0)]


NUMPY_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten("constant_pad_nd.default")
def constant_pad(m: Importer, x: Tensor, pads: Ints, value: float = 0.0) -> Tensor:
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pads) // 2):
        axis = x.rank - 1 - i
        n = x.shape[axis]
        before, after = pads[2 * i], pads[2 * i + 1]
        x = piece(m, x, axis, max(-before, 0), n - max(-after, 0))
        low[axis], high[axis] = max(before, 0), max(after, 0)
    if not any(low) and not any(high):
        return x
    widths = dict(low=tuple(low[a] for a in x.order), high=tuple(high[a] for a in x.order))
    return m.emit(Pad, x.value, order=x.order, value=float(value), **widths)


def take(m: Importer, x: Tensor, axis: int, index: Operand, skip: int = -1) -> Tensor:
    """x indexed along one axis by an array of any rank, whose axes replace that axis."""
    ids = m.plain(index)
    if ids.type.dtype is not DType.I32:
        raise Unsupported(f"indexing with {ids.type}")
    if x.dtype is not DType.F32:
        return like(m, take(m, m.tensor(real(m, x)), axis, index), x)
    stored_axis = x.stored(axis)
    extra = ids.type.rank - 1
    order: list[int] = []
    for a in x.order:
        if a == axis:
            order += range(axis, axis + ids.type.rank)
        else:
            order.append(a + extra if a > axis else a)
    return m.emit(Take, x.value, ids, order=tuple(order), axis=stored_axis, skip=skip)


def like(m: Importer, y: Tensor, x: Tensor) -> Tensor:
    """A result computed in floats, converted back to the operand's type."""
    if x.dtype is DType.U8:
        return m.tensor(truth(m, y))
    return y if x.dtype is DType.F32 else cast(m, y, "i32")


def wrapped(index: torch.Tensor, n: int) -> torch.Tensor:
    """Negative indices count from the end."""
    return torch.where(index < 0, index + n, index)


@aten("embedding.default")
def embedding(m: Importer, table: Operand, ids: Operand, padding_idx: int = -1, *_: Any) -> Tensor:
    t = m.tensor(table)
    skip = padding_idx if padding_idx >= 0 else -1
    return take(m, Tensor(m.arranger.plain(t), (0, 1)), 0, ids, skip)


@aten("index_select.default")
def index_select(m: Importer, x: Operand, dim: int, index: Operand) -> Tensor:
    base = m.tensor(x)
    if base.rank == 0:
        return base
    if isinstance(index, torch.Tensor):
        index = wrapped(index, base.shape[dim])
    return take(m, base, dim % base.rank, index)


@aten("index.Tensor")
def index(m: Importer, x: Operand, indices: Any) -> Tensor:
    base = m.tensor(x)
    used = [i for i, ids in enumerate(indices) if ids is not None]
    if not used:
        return base
    if len(used) == 1:
        ids = indices[used[0]]
        if isinstance(ids, torch.Tensor):
            if ids.dtype == torch.bool:
                ids = ids.nonzero().squeeze(1)
            ids = wrapped(ids, base.shape[used[0]])
        return take(m, base, used[0], ids)
    if used != list(range(used[0], used[0] + len(used))):  # then the new axes come first
        rest = [i for i in range(base.rank) if i not in used]
        moved = m.arranger.permute(base, (*used, *rest))
        return index(m, moved, [indices[i] for i in used])
    shape = base.shape[used[0] : used[-1] + 1]
    flat: Operand = 0
    for i, n in zip(used, shape, strict=True):
        flat = integer(m, Mul, flat, n)
        flat = integer(m, Add, flat, from_end(m, indices[i], n))
    merged = (*base.shape[: used[0]], math.prod(shape), *base.shape[used[-1] + 1 :])
    return take(m, m.arranger.view(base, merged), used[0], flat)


def integer(m: Importer, op: type[Op], a: Operand, b: Operand) -> Operand:
    """Add or Mul, evaluated immediately if both operands are known."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return binary(m, op, a, b)
    return a + b if op is Add else a * b


def from_end(m: Importer, index: Operand, n: int) -> Operand:
    """Negative indices count from the end, including computed ones."""
    if isinstance(index, torch.Tensor):
        return wrapped(index, n)
    return where(m, binary(m, Gt, 0, index), binary(m, Add, index, n), index)


@aten("gather.default")
def gather(m: Importer, x: Operand, dim: int, index: Operand, **_: Any) -> Tensor:
    base = m.tensor(x)
    if base.rank == 0:
        return m.arranger.view(base, tuple(m.tensor(index).shape))
    if isinstance(index, Tensor):
        for axis, n in enumerate(index.shape):
            if axis != dim % base.rank:
                base = piece(m, base, axis, 0, n)
        ids, axis = m.arranger.arrange(index, base.order), base.stored(dim)
        numbers = m.tensor(real(m, base)).value
        return like(m, m.emit(TakeAlong, numbers, ids, order=base.order, axis=axis), base)
    assert isinstance(index, torch.Tensor)
    grid = list(torch.meshgrid(*(torch.arange(n) for n in index.shape), indexing="ij"))
    grid[dim] = index
    flat = sum(g * math.prod(base.shape[k + 1 :]) for k, g in enumerate(grid))
    assert isinstance(flat, torch.Tensor)
    return take(m, m.arranger.view(base, (math.prod(base.shape),)), 0, flat)


@aten("roll.default")
def roll(m: Importer, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    shifts = (shifts,) if isinstance(shifts, int) else shifts
    dims = (dims,) if isinstance(dims, int) else dims
    if not dims:
        flat = m.arranger.view(x, (math.prod(x.shape),))
        return m.arranger.view(roll(m, flat, shifts, (0,)), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        n = x.shape[dim]
        cut = -shift % n
        if cut:
            parts = [piece(m, x, dim % x.rank, cut, n), piece(m, x, dim % x.rank, 0, cut)]
            x = cat(m, parts, dim)
    return x


@aten("flip.default")
def flip(m: Importer, x: Tensor, dims: Ints) -> Tensor:
    for dim in dims:
        x = take(m, x, dim % x.rank, torch.arange(x.shape[dim] - 1, -1, -1))
    return x


@aten("pixel_shuffle.default")
def pixel_shuffle(m: Importer, x: Tensor, r: int) -> Tensor:
    *lead, c, h, w = x.shape
    split_ = m.arranger.view(x, (math.prod(lead), c // (r * r), r, r, h, w))
    moved = permute(m, split_, (0, 1, 4, 2, 5, 3))
    return m.arranger.view(moved, (*lead, c // (r * r), h * r, w * r))


@aten("pixel_unshuffle.default")
def pixel_unshuffle(m: Importer, x: Tensor, r: int) -> Tensor:
    *lead, c, h, w = x.shape
    split_ = m.arranger.view(x, (math.prod(lead), c, h // r, r, w // r, r))
    moved = permute(m, split_, (0, 1, 3, 5, 2, 4))
    return m.arranger.view(moved, (*lead, c * r * r, h // r, w // r))


@aten("channel_shuffle.default")
def channel_shuffle(m: Importer, x: Tensor, groups: int) -> Tensor:
    n, c, *space = x.shape
    split_ = m.arranger.view(x, (n, groups, c // groups, *space))
    return m.arranger.view(transpose(m, split_, 1, 2), x.shape)


@aten("glu.default")
def glu(m: Importer, x: Tensor, dim: int = -1) -> Tensor:
    from ....ops.unary import Sigmoid

    a, b = split(m, x, x.shape[dim] // 2, dim)
    return binary(m, Mul, a, m.emit(Sigmoid, b.value, order=b.order))


@aten("unfold.default")
def unfold(m: Importer, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Overlapping windows along an axis; the window becomes a new last axis."""
    if x.rank == 0:
        return m.arranger.view(x, (1,))
    dim %= x.rank
    count = (x.shape[dim] - size) // step + 1
    windows = torch.arange(count)[:, None] * step + torch.arange(size)
    y = take(m, x, dim, windows)
    dims = [a for a in range(y.rank) if a != dim + 1] + [dim + 1]
    return m.arranger.permute(y, tuple(dims))


def windows(
    size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> list[torch.Tensor]:
    """For rows and columns: the position in a padded image that each tap of each window reads."""
    found = []
    for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True):
        count = (n + 2 * p - d * (k - 1) - 1) // s + 1
        found.append(torch.arange(k)[:, None] * d + torch.arange(count) * s)
    return found


@aten("im2col.default")
def im2col(
    m: Importer, x: Tensor, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Tensor:
    n, c, h, w = x.shape
    rows, columns = windows((h, w), kernel, dilation, padding, stride)
    x = constant_pad(m, x, (padding[1], padding[1], padding[0], padding[0]))
    y = take(m, take(m, x, 3, columns), 2, rows)  # n, c, kh, p, kw, q
    y = permute(m, y, (0, 1, 2, 4, 3, 5))
    shape = (n, c * kernel[0] * kernel[1], rows.shape[1] * columns.shape[1])
    return m.arranger.view(y, shape)


@aten("col2im.default")
def col2im(
    m: Importer, x: Tensor, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Tensor:
    """The transpose of im2col: overlapping elements add up."""
    n, channels, _ = x.shape
    rows, columns = windows(size, kernel, dilation, padding, stride)
    c = channels // math.prod(kernel)
    y = m.arranger.view(x, (n, c, *kernel, rows.shape[1], columns.shape[1]))
    value = m.arranger.plain(permute(m, y, (0, 1, 2, 4, 3, 5)))
    high, wide = (k + 2 * p for k, p in zip(size, padding, strict=True))
    value = m.b.emit(TakeDx, value, m.plain(columns), axis=4, size=wide)
    y = m.emit(TakeDx, value, m.plain(rows), order=(0, 1, 2, 3), axis=2, size=high)
    inner = [-padding[1], -padding[1], -padding[0], -padding[0]]
    return constant_pad(m, y, tuple(inner))
