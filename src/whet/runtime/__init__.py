"""Build programs with a C compiler and run them from Python."""

from .trainer import Trainer, stored_batch

__all__ = ["Trainer", "stored_batch"]
