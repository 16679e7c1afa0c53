"""Convolutions, linear layers and matrix products."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import Value
from ....ops.binary import Add, Mul
from ....ops.conv import Conv2d, Conv2dDx, Depthwise
from ....ops.linear import Bmm, Linear
from ....ops.reduce import Expand
from ....ops.shape import Pad
from ...model import Tensor, plain_order
from ..importer import Importer, Operand, Unsupported, aten
from ..tensor import channels_last
from ..weights import is_depthwise, weight_order
from .elementwise import binary, scaled

Ints = tuple[int, ...]


def both(values: Any, rank: int, one: int = 1) -> tuple[int, int]:
    """Per-axis attributes of a convolution as (rows, columns); sequences have one row."""
    numbers = [values] if isinstance(values, int) else list(values)
    numbers = numbers * rank if len(numbers) == 1 else numbers
    return (one, numbers[0]) if rank == 1 else (numbers[0], numbers[1])


def images(m: Importer, x: Operand, space: int) -> tuple[Value, bool]:
    """The operand as [n,h,w,c], and whether a batch axis was added."""
    t = m.tensor(x)
    unbatched = t.rank == space + 1
    if unbatched:
        t = m.arranger.view(t, (1, *t.shape))
    if t.rank != space + 2:
        raise Unsupported(f"a convolution over {t.rank - 2} axes")
    value = m.arranger.arrange(t, channels_last(t.rank))
    if space == 1:
        n, length, c = value.shape
        value = m.arranger.reshape(value, (n, 1, length, c))
    return value, unbatched


def weights(m: Importer, w: Operand, space: int, depthwise: bool = False) -> Value:
    t = m.tensor(w)
    value = m.stored(w, weight_order(t.rank, depthwise))
    if depthwise:
        kernel = value.shape[:space]
        return m.arranger.reshape(value, ((1,) * (2 - space)) + (*kernel, value.shape[space]))
    if space == 1:
        o, k, i = value.shape
        value = m.arranger.reshape(value, (o, 1, k, i))
    return value


def result(m: Importer, y: Tensor, space: int, unbatched: bool) -> Tensor:
    """Back from [n,p,q,o] to the rank PyTorch's operator has."""
    if space == 1:
        n, _, length, o = y.value.shape
        y = Tensor(m.arranger.reshape(y.value, (n, length, o)), channels_last(3))
    return m.arranger.view(y, y.shape[1:]) if unbatched else y


def convolve(
    m: Importer, x: Operand, w: Operand, bias: Operand | None, stride: Any, padding: Any,
    dilation: Any, groups: int, space: int,
) -> Tensor:  # fmt: skip
    value, unbatched = images(m, x, space)
    shape = m.tensor(w).shape
    stride, dilation = both(stride, space), both(dilation, space)
    kernel = (1, *shape[2:]) if space == 1 else shape[2:]
    if isinstance(padding, str):
        total = (
            [0, 0]
            if padding == "valid"
            else [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        )
        pad = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
    else:
        ph, pw = both(padding, space, 0)
        pad = (ph, pw, ph, pw)
    depthwise = is_depthwise(shape, groups)
    operands = [value, weights(m, w, space, depthwise)]
    if bias is not None:
        operands.append(m.plain(bias))
    attrs: dict[str, Any] = dict(stride=stride, pad=pad, dilation=dilation)
    if not depthwise:
        attrs["groups"] = groups
    op = Depthwise if depthwise else Conv2d
    return result(m, m.emit(op, *operands, order=channels_last(4), **attrs), space, unbatched)


def transposed(
    m: Importer, x: Operand, w: Operand, bias: Operand | None, stride: Any, padding: Any,
    extra: Any, groups: int, dilation: Any, space: int,
) -> Tensor:  # fmt: skip
    """A transposed convolution is the input gradient of a convolution.

    Output padding reduces the padding at the far end; beyond it, no input contributes.
    """
    value, unbatched = images(m, x, space)
    weight = weights(m, w, space)
    low, more = both(padding, space, 0), both(extra, space, 0)
    steps, holes = both(stride, space), both(dilation, space)
    high, size, missing = [0, 0], [0, 0], [0, 0]
    for a in range(2):
        high[a], beyond = max(low[a] - more[a], 0), max(more[a] - low[a], 0)
        missing[a] = max(beyond - steps[a] + 1, 0)
        reach = holes[a] * (weight.shape[1 + a] - 1) + 1
        size[a] = (value.shape[1 + a] - 1) * steps[a] + reach - low[a] - high[a]
        size[a] += beyond - missing[a]
    attrs = dict(stride=steps, pad=(*low, *high), dilation=holes, groups=groups)
    y = m.emit(Conv2dDx, value, weight, order=channels_last(4), size=(*size,), **attrs)
    if any(missing):
        y = m.emit(Pad, y.value, order=y.order, low=(0,) * 4, high=(0, *missing, 0))
    if bias is not None:
        y = m.emit(Add, y.value, m.plain(bias), order=channels_last(4))
    return result(m, y, space, unbatched)


def register_convolutions(space: int, transpose: str) -> None:
    """Over one or two axes; `transpose` is what aten calls the transposed one."""

    @aten(f"conv{space}d.default", f"conv{space}d.padding")
    def conv(
        m: Importer, x: Operand, w: Operand, bias: Operand | None = None, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        return convolve(m, x, w, bias, stride, padding, dilation, groups, space)

    @aten(transpose)
    def conv_transpose(
        m: Importer, x: Operand, w: Operand, bias: Operand | None = None, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Tensor:  # fmt: skip
        return transposed(m, x, w, bias, stride, padding, output_padding, groups, dilation, space)


register_convolutions(2, "conv_transpose2d.input")
register_convolutions(1, "conv_transpose1d.default")


@aten("convolution.default")
def convolution(
    m: Importer, x: Operand, w: Operand, bias: Operand | None, stride: Any, padding: Any,
    dilation: Any, is_transposed: bool, output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    space = m.tensor(w).rank - 2
    if space not in (1, 2):
        raise Unsupported(f"a convolution over {space} axes")
    if is_transposed:
        return transposed(m, x, w, bias, stride, padding, output_padding, groups, dilation, space)
    return convolve(m, x, w, bias, stride, padding, dilation, groups, space)


@aten("linear.default")
def linear(m: Importer, x: Operand, w: Operand, bias: Operand | None = None) -> Tensor:
    value, weight = m.plain(x), m.plain(w)
    if weight.type.rank == 1:
        y = matmul(m, Tensor(value, plain_order(value.type.rank)), w)
        return y if bias is None else binary(m, Add, y, bias)
    operands = [value, weight] + ([m.plain(bias)] if bias is not None else [])
    flat = value.type.rank == 1
    if flat:
        operands[0] = m.arranger.reshape(value, (1, *value.shape))
    y = m.emit(Linear, *operands, order=plain_order(operands[0].type.rank))
    return m.arranger.view(y, y.shape[1:]) if flat else y


# Matrix products -----------------------------------------------------------------------------


def matrix(m: Importer, x: Tensor, batch: Ints) -> tuple[Value, bool]:
    """[batch, rows, columns] and whether it is stored transposed; batch axes are expanded."""
    lead = x.rank - 2
    swapped = (*range(lead), lead + 1, lead)
    keep = x.order == swapped
    value = x.value if keep else m.arranger.plain(x)
    rows, cols = value.shape[-2:]
    if x.shape[:-2] != batch:
        shape = (1,) * (len(batch) - lead) + value.shape
        value = m.arranger.reshape(value, shape)
        if value.shape[:-2] != batch:
            value = m.b.emit(Expand, value, shape=(*batch, rows, cols))
    return m.arranger.reshape(value, (math.prod(batch), rows, cols)), keep


@aten("matmul.default", "mm.default", "bmm.default")
def matmul(m: Importer, a: Operand, b: Operand) -> Tensor:
    left, right = m.tensor(a), m.tensor(b)
    if left.rank == 1 or right.rank == 1:
        return vector_product(m, left, right)
    if right.rank == 2:
        return times_matrix(m, left, right)
    batch = tuple(torch.broadcast_shapes(left.shape[:-2], right.shape[:-2]))
    u, ta = matrix(m, left, batch)
    v, tb = matrix(m, right, batch)
    y = m.emit(Bmm, u, v, order=(0, 1, 2), ta=ta, tb=tb)
    return m.arranger.view(y, (*batch, left.shape[-2], right.shape[-1]))


def times_matrix(m: Importer, left: Tensor, right: Tensor) -> Tensor:
    """A tensor times one matrix is a linear layer, whose weights are stored transposed."""
    if right.order == (1, 0):
        return m.emit(Linear, m.arranger.plain(left), right.value, order=plain_order(left.rank))
    rows = m.arranger.view(left, (1, math.prod(left.shape[:-1]), left.shape[-1]))
    u, ta = matrix(m, rows, (1,))
    y = m.emit(Bmm, u, m.arranger.reshape(right.value, (1, *right.shape)), order=(0, 1, 2), ta=ta)
    return m.arranger.view(y, (*left.shape[:-1], right.shape[1]))


def vector_product(m: Importer, left: Tensor, right: Tensor) -> Tensor:
    """A vector is one row on the left and one column on the right."""
    shape: Ints = (*left.shape[:-1],) if right.rank == 1 else (*right.shape[:-2], right.shape[-1])
    if left.rank == 1 and right.rank == 1:
        shape = ()
    if left.rank == 1:
        left = m.arranger.view(left, (1, *left.shape))
    if right.rank == 1:
        right = m.arranger.view(right, (*right.shape, 1))
    return m.arranger.view(matmul(m, left, right), shape)


@aten("addmm.default", "baddbmm.default", "addmv.default")
def addmm(
    m: Importer, bias: Operand, a: Operand, b: Operand, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    shift, right = m.tensor(bias), m.tensor(b)
    if alpha == beta == 1 and right.order == (1, 0) and shift.shape == right.shape[1:]:
        return linear(m, a, m.arranger.permute(right, (1, 0)), shift)
    product = scaled(m, matmul(m, a, b), alpha)
    if beta == 0:
        return m.tensor(product)
    return binary(m, Add, scaled(m, bias, beta), product)


@aten("mv.default", "dot.default")
def mv(m: Importer, a: Operand, b: Operand) -> Tensor:
    return matmul(m, a, b)


@aten("outer.default")
def outer(m: Importer, a: Operand, b: Operand) -> Tensor:
    u, v = m.tensor(a), m.tensor(b)
    return binary(m, Mul, m.arranger.view(u, (*u.shape, 1)), v)
