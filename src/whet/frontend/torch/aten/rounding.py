"""Values that are rounded to the grid of int8: an int8 program has the grid, a float one cannot."""

from __future__ import annotations

from ....ir.quant import HIGH, LOW, Quant
from ...model import Tensor
from ..importer import Importer, Unsupported, aten

GRIDS = {(LOW, HIGH): 0, (0, HIGH - LOW): LOW}  # limits, and what moves the zero point to int8's


@aten("fake_quantize_per_tensor_affine.default")
def fake_quantize(m: Importer, x: Tensor, scale: float, zero: int, low: int, high: int) -> Tensor:
    """The value itself, whose grid is kept for the stage that makes integers."""
    if (low, high) not in GRIDS:
        raise Unsupported(f"rounding to whole numbers from {low} to {high}, not those of int8")
    quant = Quant(scale, zero + GRIDS[low, high])
    if m.grids.setdefault(x.value.name, quant) != quant:
        raise Unsupported("a value that is rounded to two grids")
    return x
