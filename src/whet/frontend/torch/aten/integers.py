"""Booleans, argmax, cumulative sums: what masks and position ids are computed with."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import DType
from ....ops.amax import Amax
from ....ops.binary import Eq, Ne, Sub
from ....ops.integer import And, Argmax, Not, Or
from ....ops.reduce import Cumsum
from ....ops.shape import TakeAlong
from ....ops.unary import Neg
from ...model import Tensor
from ..importer import Importer, Operand, Unsupported, aten
from .elementwise import aligned, binary, cast, floating, kind, real, truth
from .moving import expand
from .reducing import Dims, reduced


@aten("logical_not.default")
def logical_not(m: Importer, x: Operand) -> Tensor:
    t = m.tensor(truth(m, x))
    return m.emit(Not, t.value, order=t.order)


@aten("bitwise_not.default")
def bitwise_not(m: Importer, x: Operand) -> Tensor:
    return logical_not(m, x) if kind(x) is DType.U8 else binary(m, Sub, -1, x)


def logic(m: Importer, op: type[And] | type[Or], a: Operand, b: Operand) -> Tensor:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, torch.Tensor) and isinstance(other, Tensor) and op is And and one.all():
            t = m.tensor(truth(m, other))  # as in the masks of encoders: it is only repeated
            return expand(m, t, torch.broadcast_shapes(one.shape, t.shape))
    values, order = aligned(m, truth(m, a), truth(m, b))
    return m.emit(op, *values, order=order)


@aten("logical_and.default")
def logical_and(m: Importer, a: Operand, b: Operand) -> Tensor:
    return logic(m, And, a, b)


@aten("logical_or.default")
def logical_or(m: Importer, a: Operand, b: Operand) -> Tensor:
    return logic(m, Or, a, b)


@aten("logical_xor.default")
def logical_xor(m: Importer, a: Operand, b: Operand) -> Tensor:
    return binary(m, Ne, truth(m, a), truth(m, b))


@aten("bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor")
def bitwise_and(m: Importer, a: Operand, b: Operand) -> Tensor:
    return logic(m, And, *bits(a, b))


@aten("bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor")
def bitwise_or(m: Importer, a: Operand, b: Operand) -> Tensor:
    return logic(m, Or, *bits(a, b))


@aten("bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor")
def bitwise_xor(m: Importer, a: Operand, b: Operand) -> Tensor:
    return binary(m, Ne, *bits(a, b))


def bits(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    if kind(a) is not DType.U8 or kind(b) is not DType.U8:
        raise Unsupported("bitwise operations on integers")
    return a, b


@aten("any.default", "any.dim", "any.dims")
def any_(m: Importer, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    numbers = m.tensor(real(m, truth(m, x)))
    return m.tensor(truth(m, reduced(m, Amax, numbers, dims, keepdim)))


@aten("all.default", "all.dim", "all.dims")
def all_(m: Importer, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    return logical_not(m, any_(m, logical_not(m, x), dims, keepdim))


@aten("one_hot.default")
def one_hot(m: Importer, x: Tensor, classes: int = -1) -> Tensor:
    column = m.arranger.view(x, (*x.shape, 1))
    return cast(m, binary(m, Eq, column, torch.arange(classes)), "i32")


# Where the largest is ------------------------------------------------------------------------


@aten("argmax.default")
def argmax(m: Importer, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The first index of the maximum; without an axis, in PyTorch's element order."""
    if dim is None or x.rank == 0:
        y = argmax(m, m.arranger.view(x, (math.prod(x.shape),)), 0)
        return m.arranger.view(y, (1,) * x.rank) if keepdim else y
    numbers = m.tensor(real(m, x))
    y = m.emit(Argmax, numbers.value, order=x.order, axis=x.stored(dim))
    return y if keepdim else without(m, y, dim)


@aten("argmin.default")
def argmin(m: Importer, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    numbers = m.tensor(real(m, x))
    return argmax(m, m.emit(Neg, numbers.value, order=x.order), dim, keepdim)


def without(m: Importer, x: Tensor, dim: int) -> Tensor:
    dim %= x.rank
    return m.arranger.view(x, (*x.shape[:dim], *x.shape[dim + 1 :]))


@aten("max.dim")
def max_dim(m: Importer, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The gradient goes to one element, the first maximum, unlike that of amax."""
    if x.rank == 0:
        return x, argmax(m, x)
    place = argmax(m, x, dim, keepdim=True)
    y = m.emit(TakeAlong, floating(x), place.value, order=x.order, axis=x.stored(dim))
    return (y, place) if keepdim else (without(m, y, dim), without(m, place, dim))


@aten("min.dim")
def min_dim(m: Importer, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    y, place = max_dim(m, m.emit(Neg, floating(x), order=x.order), dim, keepdim)
    return m.emit(Neg, y.value, order=y.order), place


@aten("max.default")
def max_all(m: Importer, x: Tensor) -> Tensor:
    return reduced(m, Amax, x, None, False)


@aten("min.default")
def min_all(m: Importer, x: Tensor) -> Tensor:
    y = reduced(m, Amax, m.emit(Neg, floating(x), order=x.order), None, False)
    return m.emit(Neg, y.value, order=y.order)


@aten("cumsum.default")
def cumsum(m: Importer, x: Tensor, dim: int, **_: Any) -> Tensor:
    """Integers are summed as floats, which is exact below 2^24."""
    if x.rank == 0:
        return x
    numbers = m.tensor(real(m, x))
    y = m.emit(Cumsum, numbers.value, order=x.order, axis=x.stored(dim))
    return y if x.dtype is DType.F32 else cast(m, y, "i32")
