"""Integer programs: calibration, the integer graph, and what its numbers stand for."""

from ..ir.quant import Quant, Recipe
from .options import Int8, int8_of

__all__ = ["Int8", "Quant", "Recipe", "int8_of"]
