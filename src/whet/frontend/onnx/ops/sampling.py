"""Grids of places, and values of a picture at places that are no pixels."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ....ir import Array
from ..rows import Call, ints, row


@row("GridSample")
def grid_sample(c: Call, x: Tensor, grid: Tensor) -> Tensor:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = c.attr("mode", "linear" if c.version > 19 else "bilinear")
    corners, padding = c.flag("align_corners"), c.attr("padding_mode", "zeros")
    mode = names.get(mode, mode)
    if mode == "bicubic" and x.ndim != 4:
        c.refuse("cubic interpolation of volumes")
    found: Tensor = F.grid_sample(x, grid, mode, padding, corners)
    return found


@row("AffineGrid", known=(1,))
def affine_grid(c: Call, theta: Tensor, sizes: Array) -> Tensor:
    return F.affine_grid(theta, ints(sizes), c.flag("align_corners"))
