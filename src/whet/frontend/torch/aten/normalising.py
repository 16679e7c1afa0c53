"""Batch, group, instance, layer and RMS normalisation."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import Value
from ....ops.binary import Div, Mul
from ....ops.norm import BatchNorm, BatchNormTrain, GroupNorm, RmsNorm
from ....ops.reduce import Norm
from ....ops.update import Ema
from ...model import Tensor, plain_order
from ..importer import Importer, Operand, Unsupported, aten
from ..tensor import channels_last
from .elementwise import binary

Optional = Operand | None


def per_channel(m: Importer, x: Optional, channels: int, default: float) -> Value:
    if x is None:
        return m.tensor(torch.full((channels,), default)).value
    return m.plain(x)


def affine(m: Importer, w: Optional, b: Optional, channels: int) -> tuple[Value, Value]:
    return per_channel(m, w, channels, 1.0), per_channel(m, b, channels, 0.0)


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm_frozen(
    m: Importer, x: Operand, w: Optional, b: Optional, mean: Operand, var: Operand,
    momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    t = m.tensor(x)
    order = channels_last(t.rank)
    operands = (m.stored(x, order), *affine(m, w, b, t.shape[1]), m.plain(mean), m.plain(var))
    return (m.emit(BatchNorm, *operands, order=order, eps=float(eps)),)


@aten("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    m: Importer, x: Operand, w: Optional, b: Optional, mean: Operand, var: Operand,
    training: bool, momentum: float, eps: float,
) -> tuple[Any, ...]:  # fmt: skip
    """In training mode, results 3 and 4 are the next running mean and variance."""
    if not training:
        y = batch_norm_frozen(m, x, w, b, mean, var, momentum, eps)[0]
        return y, None, None, mean, var
    y, batch_mean, batch_var = batch_statistics(m, x, w, b, eps)
    n = math.prod(y.shape) // y.shape[1]
    if n == 1:
        raise Unsupported("a single value per channel has no variance")
    name, moment = m.name, float(momentum)
    next_mean = m.b.emit(Ema, m.plain(mean), batch_mean, name=f"{name}.mean", momentum=moment)
    correction = n / (n - 1)
    next_var = m.b.emit(
        Ema, m.plain(var), batch_var, name=f"{name}.var", momentum=moment, correction=correction
    )
    return y, None, None, Tensor(next_mean, (0,)), Tensor(next_var, (0,))


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_without_running(
    m: Importer, x: Operand, w: Optional, b: Optional, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    return (batch_statistics(m, x, w, b, eps)[0],)


def batch_statistics(
    m: Importer, x: Operand, w: Optional, b: Optional, eps: float
) -> tuple[Tensor, Value, Value]:
    t = m.tensor(x)
    order = channels_last(t.rank)
    operands = (m.stored(x, order), *affine(m, w, b, t.shape[1]))
    y, mean, var = m.b.emit_all(BatchNormTrain, *operands, name=m.name, eps=float(eps))
    return Tensor(y, order), mean, var


@aten("group_norm.default")
def group_norm(
    m: Importer, x: Operand, groups: int, w: Optional = None, b: Optional = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> Tensor:  # fmt: skip
    t = m.tensor(x)
    order = channels_last(t.rank)
    operands = (m.stored(x, order), *affine(m, w, b, t.shape[1]))
    return m.emit(GroupNorm, *operands, order=order, groups=groups, eps=float(eps))


@aten("instance_norm.default")
def instance_norm(
    m: Importer, x: Operand, w: Optional, b: Optional, mean: Optional, var: Optional,
    use_input_stats: bool, momentum: float, eps: float, cudnn: bool = True,
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        assert mean is not None and var is not None
        return batch_norm_frozen(m, x, w, b, mean, var, momentum, eps)[0]
    if mean is not None:
        raise Unsupported("an instance norm that updates running statistics")
    return group_norm(m, x, m.tensor(x).shape[1], w, b, eps)


@aten("layer_norm.default")
def layer_norm(
    m: Importer, x: Operand, shape: tuple[int, ...], w: Optional = None, b: Optional = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> Tensor:  # fmt: skip
    """A group norm with one group, in which every row is an image."""
    flat, gain, shift = by_rows(m, x, shape, w, b)
    operands = (flat, *affine(m, gain, shift, flat.shape[1]))
    y = m.emit(GroupNorm, *operands, order=(0, 1), eps=float(eps))
    return as_before(m, x, y)


def by_rows(m: Importer, x: Operand, shape: tuple[int, ...], *affine: Optional) -> tuple[Any, ...]:
    """x as rows of what is normalised together, its last axes, and gain and offset to match."""
    width = math.prod(shape)
    flat = m.arranger.reshape(m.plain(x), (math.prod(m.tensor(x).shape) // width, width))
    return flat, *(None if v is None else m.arranger.view(m.tensor(v), (width,)) for v in affine)


def as_before(m: Importer, x: Operand, y: Tensor) -> Tensor:
    """Rows with the shape that x had."""
    t = m.tensor(x)
    return Tensor(m.arranger.reshape(y.value, t.shape), plain_order(t.rank))


@aten("rms_norm.default")
def rms_norm(
    m: Importer, x: Operand, shape: tuple[int, ...], w: Optional = None, eps: float | None = None
) -> Tensor:
    flat, gain = by_rows(m, x, shape, w)
    eps = float(torch.finfo(torch.float32).eps if eps is None else eps)
    gain = per_channel(m, gain, flat.shape[1], 1.0)
    return as_before(m, x, m.emit(RmsNorm, flat, gain, order=(0, 1), eps=eps))


@aten("_weight_norm.default")
def weight_norm(m: Importer, v: Operand, g: Operand, dim: int = 0) -> Tensor:
    """g * v / |v|, the norm over all axes but `dim`, or over all of them if it is -1."""
    t = m.tensor(v)
    kept = set() if dim == -1 else {t.stored(dim)}
    axes = tuple(a for a in range(t.rank) if a not in kept)
    length = m.emit(Norm, t.value, order=t.order, axes=axes)
    return binary(m, Mul, t, binary(m, Div, g, length))
