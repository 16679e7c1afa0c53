"""Pools over windows."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..rows import Given, Made, activation, fused, row
from ..windows import INSIDE, OUTSIDE, pads


@row("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(given: Given) -> Made:
    options = given.options("Pool2DOptions")
    kernel = (options.FilterHeight(), options.FilterWidth())
    around, strides = pads(given, options, kernel), (options.StrideH(), options.StrideW())
    if any(around):
        raise given.refused("it is padded")
    kind = nn.AvgPool2d if given.operation.code == "AVERAGE_POOL_2D" else nn.MaxPool2d
    act = activation(given, options.FusedActivationFunction())

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        return compute(x.permute(INSIDE)).permute(OUTSIDE)

    return fused(given, kind(kernel, strides), act, moved, {})
