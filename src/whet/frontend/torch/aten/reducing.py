"""Reductions, softmax and dropout."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import DType, Op
from ....ops.amax import Amax
from ....ops.binary import Add, Mul, Sub
from ....ops.random import Dropout, Uniform
from ....ops.reduce import Mean, Norm, Sum
from ....ops.softmax import LogSoftmax, Softmax
from ....ops.unary import Abs, Clamp, Exp, Log, Neg
from ...model import Tensor, plain_order
from ..importer import Handler, Importer, Operand, Unsupported, aten
from .elementwise import binary, cast, floating, real

Dims = int | tuple[int, ...] | None


def reduced(m: Importer, op: type[Op], x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    """Reduce over the tensor's axes; none or an empty list means all of them."""
    listed = [dims] if isinstance(dims, int) else list(dims or range(x.rank))
    logical = sorted(d % x.rank if x.rank else 0 for d in listed) if x.rank else []
    if not logical:
        return Tensor(floating(x), x.order)
    axes = tuple(sorted(x.stored(d) for d in logical))
    y = m.emit(op, floating(x), order=x.order, axes=axes)
    if keepdim:
        return y
    return m.arranger.view(y, tuple(n for a, n in enumerate(y.shape) if a not in logical))


@aten("mean.dim", "mean.default")
def mean(m: Importer, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    return reduced(m, Mean, x, dims, keepdim)


@aten("sum.dim_IntList", "sum.default")
def total(m: Importer, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    """Integers are summed as floats, which is exact below 2^24."""
    y = reduced(m, Sum, m.tensor(real(m, x)), dims, keepdim)
    return y if x.dtype is DType.F32 else cast(m, y, "i32")


@aten("amax.default")
def amax(m: Importer, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    return reduced(m, Amax, x, dims, keepdim)


@aten("amin.default")
def amin(m: Importer, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    flipped = m.emit(Neg, floating(x), order=x.order)
    y = reduced(m, Amax, flipped, dims, keepdim)
    return m.emit(Neg, y.value, order=y.order)


@aten("linalg_vector_norm.default")
def vector_norm(
    m: Importer, x: Tensor, ord: float = 2, dims: Dims = None, keepdim: bool = False, **_: Any
) -> Tensor:
    if ord == 2 and x.rank > 0:
        return reduced(m, Norm, x, dims, keepdim)
    size = m.emit(Abs, floating(x), order=x.order)
    if ord == 1 or (ord == 2 and x.rank == 0):
        return reduced(m, Sum, size, dims, keepdim)
    if ord == math.inf:
        return reduced(m, Amax, size, dims, keepdim)
    raise Unsupported(f"a vector norm of order {ord}")


def deviation(
    m: Importer, x: Tensor, op: type[Op], dims: Dims = None, correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, float]:  # fmt: skip
    """x - mean, reduced, and the divisor of its sum of squares."""
    centred = binary(m, Sub, x, reduced(m, Mean, x, dims, True))
    squares = centred if op is Norm else binary(m, Mul, centred, centred)
    y = reduced(m, op, squares, dims, keepdim)
    n = math.prod(x.shape) // max(math.prod(y.shape), 1)
    divisor = n - (1.0 if correction is None else correction)
    if divisor <= 0:
        raise Unsupported(f"a variance of {n} value(s) with a correction of {n - divisor:g}")
    return y, divisor


@aten("var.correction")
def var(m: Importer, x: Tensor, dims: Dims = None, **how: Any) -> Tensor:
    y, divisor = deviation(m, x, Sum, dims, **how)
    return binary(m, Mul, y, 1.0 / divisor)


@aten("std.correction")
def std(m: Importer, x: Tensor, dims: Dims = None, **how: Any) -> Tensor:
    """Computed as a norm, whose gradient is 0 where all values are equal, as in PyTorch."""
    y, divisor = deviation(m, x, Norm, dims, **how)
    return binary(m, Mul, y, 1.0 / math.sqrt(divisor))


def with_mean(name: str, handler: Handler) -> Handler:
    """The operator that gives the mean as well."""

    @aten(name)
    def both(
        m: Importer, x: Tensor, dims: Dims = None, *, correction: float | None = None,
        keepdim: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        spread = handler(m, x, dims, correction=correction, keepdim=keepdim)
        return spread, reduced(m, Mean, x, dims, keepdim)

    return both


def unbiased(name: str, handler: Handler) -> None:
    """The overloads with `unbiased`, where newer ones have `correction`."""

    @aten(f"{name}.dim")
    def over_dims(
        m: Importer, x: Tensor, dims: Dims, unbiased: bool = True, keepdim: bool = False
    ) -> Any:
        return handler(m, x, dims, correction=int(unbiased), keepdim=keepdim)

    @aten(f"{name}.default")
    def over_all(m: Importer, x: Tensor, unbiased: bool = True) -> Any:
        return handler(m, x, None, correction=int(unbiased))


unbiased("var", var)
unbiased("std", std)
unbiased("var_mean", with_mean("var_mean.correction", var))
unbiased("std_mean", with_mean("std_mean.correction", std))


@aten("logsumexp.default")
def logsumexp(m: Importer, x: Tensor, dims: Dims, keepdim: bool = False) -> Tensor:
    """max + log of the sum of exp(x - max); no gradient flows through the maximum.

    An infinite maximum is replaced by a finite one, since inf - inf is NaN.
    """
    if x.rank == 0:
        return x
    top = detach(m, reduced(m, Amax, x, dims, True))
    largest = torch.finfo(torch.float32).max
    top = m.emit(Clamp, top.value, order=top.order, low=-largest, high=largest)
    shifted = binary(m, Sub, x, top)
    e = m.emit(Exp, shifted.value, order=shifted.order)
    inner = reduced(m, Sum, e, dims, True)
    y = binary(m, Add, m.emit(Log, inner.value, order=inner.order), top)
    if keepdim:
        return y
    listed = {d % x.rank for d in ([dims] if isinstance(dims, int) else dims or ())}
    return m.arranger.view(y, tuple(n for a, n in enumerate(y.shape) if a not in listed))


def detach(m: Importer, x: Tensor) -> Tensor:
    from ....ops.shape import Detach

    return m.emit(Detach, x.value, order=x.order)


@aten("detach.default")
def detach_handler(m: Importer, x: Tensor) -> Tensor:
    return detach(m, x)


@aten("softmax.int", "_softmax.default")
def softmax(m: Importer, x: Tensor, dim: int, *_: Any) -> Tensor:
    if x.rank == 0:
        return m.arranger.view(softmax(m, m.arranger.view(x, (1,)), 0), ())
    return m.emit(Softmax, floating(x), order=x.order, axis=x.stored(dim))


@aten("log_softmax.int", "_log_softmax.default")
def log_softmax(m: Importer, x: Tensor, dim: int, *_: Any) -> Tensor:
    if x.rank == 0:
        return m.arranger.view(log_softmax(m, m.arranger.view(x, (1,)), 0), ())
    return m.emit(LogSoftmax, floating(x), order=x.order, axis=x.stored(dim))


@aten("native_dropout.default")
def native_dropout(m: Importer, x: Operand, p: float, train: bool | None = True) -> tuple[Tensor]:
    return (dropout(m, m.tensor(x), p) if train else m.tensor(x),)


def dropout(m: Importer, x: Tensor, p: float) -> Tensor:
    if p == 0:
        return x
    rng, site = m.random_state()
    return m.emit(Dropout, floating(x), rng, order=x.order, p=float(p), site=site)


@aten("bernoulli.p")
def bernoulli(m: Importer, x: Operand, p: float = 0.5) -> Tensor:
    """1 with probability p, else 0: dropout of the constant p."""
    assert isinstance(x, (Tensor, torch.Tensor))
    return dropout(m, m.tensor(torch.full(tuple(x.shape), p, dtype=torch.float64)), 1 - p)


@aten("rand.default", "rand_like.default")
def rand(m: Importer, like: Tensor | torch.Tensor | tuple[int, ...], **_: Any) -> Tensor:
    shape = tuple(like) if isinstance(like, (tuple, list)) else tuple(like.shape)
    rng, site = m.random_state()
    return m.emit(Uniform, rng, order=plain_order(len(shape)), shape=shape, site=site)
