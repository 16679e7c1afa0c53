"""Firmware for microcontrollers, without an operating system, run in QEMU."""

from .board import Board
from .target import BareMetal

__all__ = ["BareMetal", "Board"]
