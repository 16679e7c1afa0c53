"""QuantizeLinear and DequantizeLinear in floats: values are rounded to the grid of the integers.

Around a value, the two are one operator of PyTorch, whose gradient passes where nothing is cut off.
Elsewhere no gradient passes the rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....ir.quant import HIGH, LOW
from ..integers import GRID, OWN
from ..rows import Call, row, type_of
from .moving import positive


def spread(c: Call, x: Tensor, values: Tensor) -> Tensor:
    """Scales or zero points, shaped like what they belong to: all, an axis, or its blocks."""
    if values.ndim == 0 or values.numel() == 1:
        return values.reshape([1] * x.ndim)
    axis, block = positive(c.attr("axis", 1), x.ndim), c.attr("block_size", 0)
    if values.ndim == 1 and not block:
        shape = [1] * x.ndim
        shape[axis] = -1
        return values.reshape(shape)
    if values.ndim != x.ndim:
        c.refuse(f"scales of shape {tuple(values.shape)}")
    each = block or -(-x.shape[axis] // values.shape[axis])
    return values.repeat_interleave(each, dim=axis).narrow(axis, 0, x.shape[axis])


@row("QuantizeLinear")
def quantize(c: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    named = c.attr("output_dtype", 0)
    kind = zero.dtype if zero is not None else type_of(c, named) if named else torch.uint8
    if kind not in (torch.uint8, torch.int8, torch.uint16, torch.int16):
        c.refuse(f"integers of type {kind}")
    limits = torch.iinfo(kind)
    steps = torch.round(x / spread(c, x, scale.to(x.dtype)))
    moved = steps if zero is None else steps + spread(c, x, zero.to(x.dtype))
    return torch.clamp(moved, limits.min, limits.max).to(kind)


@row("DequantizeLinear")
def dequantize(c: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    found = x.to(scale.dtype)
    if zero is not None:
        found = found - spread(c, x, zero.to(scale.dtype))
    return found * spread(c, x, scale)


@row(GRID, domain=OWN)
def round_to_grid(c: Call, x: Tensor) -> Tensor:
    grid = c.attr("scale"), c.attr("zero"), LOW, HIGH
    found: Tensor = torch.fake_quantize_per_tensor_affine(x, *grid)
    return found
