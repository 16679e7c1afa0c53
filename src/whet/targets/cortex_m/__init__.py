"""cortex-m: firmware for Arm microcontrollers, run in QEMU."""

from .board import Board
from .target import CORTEX_M, CortexM

__all__ = ["CORTEX_M", "Board", "CortexM"]
