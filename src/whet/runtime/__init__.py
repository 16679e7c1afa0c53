"""Build programs with a C compiler and run them from Python."""

from .board import Board
from .trainer import Trainer, stored_batch

__all__ = ["Board", "Trainer", "stored_batch"]
