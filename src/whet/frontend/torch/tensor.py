"""A PyTorch tensor during import: an IR value and the order in which its axes are stored.

Convolutions store channels last; `permute` costs nothing because it only changes the order.
Elements are transposed only when an operator needs another order, and then only once per value.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from ...errors import ShapeError
from ...ir import Array, Builder, DType, Role, Type, Value, f32, meta_array
from ...ir.axes import channels_last as channels_last
from ...ops.shape import Reshape, Transpose
from ..model import Order, Tensor, plain_order


def numpy_of(tensor: torch.Tensor) -> Array:
    """A constant as an array with an element type of the IR."""
    t = tensor.detach().cpu()
    if t.dtype == torch.bool:
        return np.asarray(t.numpy().astype(np.uint8))
    if t.is_floating_point():
        wide = t if t.dtype == torch.float64 else t.to(torch.float32)
        return np.asarray(wide.contiguous().numpy())
    limits = torch.iinfo(torch.int32)
    if t.numel() and (t.min() < limits.min or t.max() > limits.max):
        raise ShapeError(f"a constant holds {int(t.max())}, which does not fit into 32 bits")
    return np.asarray(t.numpy().astype(np.int32))


def ir_dtype(dtype: torch.dtype) -> DType | None:
    if dtype.is_floating_point:
        return DType.F32
    if dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        return DType.I32
    return DType.U8 if dtype == torch.bool else None


class Arranger:
    """Transposes values on demand, at most once per value and order."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.names: dict[int, str] = {}  # names of constants by id, if they have one
        self._done: dict[tuple[Value, Order], Value] = {}

    def constant(self, tensor: torch.Tensor, order: Order | None = None) -> Tensor:
        array = numpy_of(tensor)
        order = order if order is not None else plain_order(array.ndim)
        array = np.ascontiguousarray(array.transpose(order)) if array.ndim else array
        dtype = ir_dtype(tensor.dtype)
        assert dtype is not None
        name = self.names.get(id(tensor), "const")
        return Tensor(self.b.const(array, name=name, dtype=dtype), order)

    def arrange(self, t: Tensor, order: Order) -> Value:
        """The value with its axes stored in `order`; a view if only axes of size 1 move."""
        if t.order == order:
            return t.value
        key = (t.value, (*t.order, -1, *order))
        if key not in self._done:
            perm = tuple(t.order.index(axis) for axis in order)
            shape = tuple(t.value.shape[k] for k in perm)
            moving = [k for k in perm if t.value.shape[k] != 1]
            if moving == sorted(moving):
                self._done[key] = self.reshape(t.value, shape)
            else:
                name = f"{t.value.name}.t"
                self._done[key] = self.b.emit(Transpose, t.value, name=name, perm=perm)
        return self._done[key]

    def plain(self, t: Tensor) -> Value:
        return self.arrange(t, plain_order(t.rank))

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        if value.shape == shape:
            return value
        return self.b.emit(Reshape, value, name=f"{value.name}.view", shape=shape)

    def view(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """PyTorch's reshape; keeps the stored order if each stored axis is only split or merged."""
        order = view_order(t, shape)
        if order is None:
            return Tensor(self.reshape(self.plain(t), shape), plain_order(len(shape)))
        return Tensor(self.reshape(t.value, tuple(shape[a] for a in order)), order)

    def permute(self, t: Tensor, dims: tuple[int, ...]) -> Tensor:
        """New axis i is old axis dims[i]; nothing is moved."""
        new_of_old = {old: new for new, old in enumerate(dims)}
        return Tensor(t.value, tuple(new_of_old[axis] for axis in t.order))


def factor_groups(
    old: list[tuple[int, int]], new: list[tuple[int, int]]
) -> list[tuple[list[int], list[int]]]:
    """Match (axis, size) lists into the smallest groups of equal product."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old):
        left, right = [old[i][0]], [new[j][0]]
        a, b = old[i][1], new[j][1]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                left.append(old[i][0])
                a *= old[i][1]
                i += 1
            else:
                right.append(new[j][0])
                b *= new[j][1]
                j += 1
        groups.append((left, right))
    return groups


def view_order(t: Tensor, shape: tuple[int, ...]) -> Order | None:
    """The stored axis order of the reshaped tensor if no element moves; None if some must."""
    old = [(a, n) for a, n in enumerate(t.shape) if n != 1]
    new = [(a, n) for a, n in enumerate(shape) if n != 1]
    if math.prod(t.shape) == 0:
        return None
    groups = factor_groups(old, new)
    stored = [a for a in t.order if t.shape[a] != 1]
    order: list[int] = []
    while stored:
        left, right = next(g for g in groups if stored[0] in g[0])
        if stored[: len(left)] != left:
            return None
        order += right
        stored = stored[len(left) :]
    units = [a for a, n in enumerate(shape) if n == 1]
    for a in units:  # a unit axis may be anywhere; near its natural position keeps views tidy
        order.insert(min(a, len(order)), a)
    return tuple(order)


def parameter(
    b: Builder, name: str, tensor: torch.Tensor, order: Order, role: Role = Role.PARAM
) -> Tensor:
    array = numpy_of(tensor).transpose(order) if order else numpy_of(tensor)
    dtype = ir_dtype(tensor.dtype)
    assert dtype is not None
    return Tensor(b.leaf(name, Type(dtype, array.shape), role, array), order)


def meta_parameter(b: Builder, name: str, tensor: torch.Tensor, order: Order) -> Tensor:
    """One without values."""
    shape = tuple(tensor.shape[axis] for axis in order)
    return Tensor(b.leaf(name, f32(*shape), Role.PARAM, meta_array(shape, np.float32, name)), order)
