"""How windows move over images, for convolutions and pools."""

from __future__ import annotations

from typing import Any

from .rows import Given

SAME = 0
INSIDE, OUTSIDE = (0, 3, 1, 2), (0, 2, 3, 1)  # images with the channels second, and last


def pads(given: Given, options: Any, kernel: tuple[int, ...]) -> list[int]:
    """Left, right, top and bottom, as TFLite fills up."""
    if options.Padding() != SAME:
        return [0, 0, 0, 0]
    strides = (options.StrideH(), options.StrideW())
    dilations = dilation_of(options)
    found: list[int] = []
    for axis in (1, 0):
        size, out = given.needed(0).shape[axis + 1], given.result.shape[axis + 1]
        if out != -(-size // strides[axis]):
            raise ValueError(f"{given.operation.code} makes {size} pixels {out}")
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = max(0, (out - 1) * strides[axis] + reach - size)
        found += [total // 2, total - total // 2]
    return found


def dilation_of(options: Any) -> tuple[int, int]:
    if not hasattr(options, "DilationHFactor"):
        return 1, 1
    return options.DilationHFactor(), options.DilationWFactor()
