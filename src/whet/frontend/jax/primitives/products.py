"""Matrix products and convolutions."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, Value, row
from .moving import part_of


@row("dot_general")
def dot_general(call: Call, a: Value, b: Value) -> Tensor:
    a, b = widened(call, a, b)
    (summed_a, summed_b), (batch_a, batch_b) = call.params["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in (*summed_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*summed_b, *batch_b)]
    batch = [a.shape[i] for i in batch_a]
    length = prod(a.shape[i] for i in summed_a)
    rows = [a.shape[i] for i in free_a]
    columns = [b.shape[i] for i in free_b]
    left = a.permute(*batch_a, *free_a, *summed_a)
    right = b.permute(*batch_b, *summed_b, *free_b).reshape(*batch, length, prod(columns))
    if batch or len(summed_a) != 1 or not rows:
        left = left.reshape(*batch, prod(rows), length)
    return torch.matmul(left, right).reshape((*batch, *rows, *columns)).to(call.dtype())


def widened(call: Call, a: Value, b: Value) -> tuple[Tensor, Tensor]:
    """Operands of the type that a product is computed in: the widest of theirs and its own."""
    x, y = call.tensor(a), call.tensor(b)
    kind = torch.promote_types(torch.promote_types(x.dtype, y.dtype), call.dtype())
    return x.to(kind), y.to(kind)


CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@row("conv_general_dilated")
def conv_general_dilated(call: Call, x: Value, weight: Value) -> Tensor:
    params = call.params
    places = params["dimension_numbers"]
    x, weight = widened(call, x, weight)
    x, weight = x.permute(tuple(places.lhs_spec)), weight.permute(tuple(places.rhs_spec))
    if params["batch_group_count"] != 1 or not 3 <= x.ndim <= 5:
        call.refuse("groups of the batch, or more than three axes")
    if any(n != 1 for n in params["lhs_dilation"]):
        found = transposed(call, x, weight)
    else:
        pads = [tuple(pair) for pair in params["padding"]]
        padding = [low for low, _ in pads]
        if any(low != high or low < 0 for low, high in pads):
            x, padding = F.pad(x, [n for pair in reversed(pads) for n in pair]), [0] * len(pads)
        found = CONVOLUTIONS[x.ndim - 3](
            x,
            weight,
            stride=list(params["window_strides"]),
            padding=padding,
            dilation=list(params["rhs_dilation"]),
            groups=params["feature_group_count"],
        )
    order = tuple(places.out_spec)
    return found.permute([order.index(i) for i in range(found.ndim)]).to(call.dtype())


def transposed(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """A convolution of an input with zeros between its elements."""
    params = call.params
    if params["feature_group_count"] != 1 or any(n != 1 for n in params["window_strides"]):
        call.refuse("a transposed convolution with groups or strides")
    axes = list(range(2, x.ndim))
    turned = torch.flip(weight, axes).transpose(0, 1)
    strides, dilation = list(params["lhs_dilation"]), list(params["rhs_dilation"])
    whole = TRANSPOSED[x.ndim - 3](x, turned, stride=strides, dilation=dilation)
    pads: list[int] = []
    starts, ends = [0, 0], list(whole.shape[:2])
    for i, (low, high) in enumerate(params["padding"]):
        reach, size = dilation[i] * (weight.shape[i + 2] - 1), whole.shape[i + 2]
        starts.append(max(0, reach - low))
        ends.append(size - max(0, reach - high))
        pads = [max(0, low - reach), max(0, high - reach), *pads]
    found = part_of(whole, tuple(starts), tuple(ends), (1,) * x.ndim)
    return F.pad(found, pads) if any(pads) else found
