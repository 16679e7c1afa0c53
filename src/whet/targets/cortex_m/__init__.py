"""cortex-m: firmware for Arm microcontrollers, run in QEMU."""

from .board import Board
from .target import CORTEX_M4, CORTEX_M7, CortexM

__all__ = ["CORTEX_M4", "CORTEX_M7", "Board", "CortexM"]
