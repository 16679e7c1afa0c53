"""Build programs with a C compiler and run them from Python."""

from .cache import cache_folder
from .trainer import Trainer, stored_batch, to_numpy

__all__ = ["Trainer", "cache_folder", "stored_batch", "to_numpy"]
