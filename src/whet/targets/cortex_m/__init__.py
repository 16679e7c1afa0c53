"""cortex-m: microcontrollers with an Arm core."""

from ..bare_metal import Board
from .target import CORTEX_M, CortexM

__all__ = ["CORTEX_M", "Board", "CortexM"]
