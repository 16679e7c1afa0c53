"""Pools over windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..rows import Given, Made, activation, fused, row
from ..windows import INSIDE, OUTSIDE, SAME, pads


@row("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(given: Given) -> Made:
    """Of what is inside the image: padding is never the largest, and counts in no average.

    PyTorch pads both ends alike, TFLite the far end by one more. A last window that ends outside
    makes up for it; with a stride of 1 there is none, and one window too many at the near end.
    """
    given.computed(0)
    options: Any = given.options("Pool2DOptions")
    kernel = (options.FilterHeight(), options.FilterWidth())
    strides = (options.StrideH(), options.StrideW())
    left, right, top, bottom = pads(given, options, kernel)
    more_rows, more_columns = (
        int(step == 1 and near < far)
        for step, near, far in zip(strides, (top, left), (bottom, right), strict=True)
    )
    around = (top + more_rows, left + more_columns)
    settings: dict[str, Any] = dict(padding=around, ceil_mode=options.Padding() == SAME)
    if given.operation.code == "AVERAGE_POOL_2D":
        layer: nn.Module = nn.AvgPool2d(kernel, strides, count_include_pad=False, **settings)
    else:
        layer = nn.MaxPool2d(kernel, strides, **settings)

    def moved(x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        y = compute(x.permute(INSIDE))
        if more_rows or more_columns:
            y = y[:, :, more_rows:, more_columns:]
        return y.permute(OUTSIDE)

    return fused(given, layer, activation(given, options.FusedActivationFunction()), moved, {})
