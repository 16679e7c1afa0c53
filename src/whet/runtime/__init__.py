"""Build programs with a C compiler and run them from Python."""

from .cache import cache_folder
from .exchange import set_statistics, set_trained, statistics, trained
from .trainer import Trainer, stored_batch, to_numpy

__all__ = [
    "Trainer", "cache_folder", "set_statistics", "set_trained", "statistics", "stored_batch",
    "to_numpy", "trained",
]  # fmt: skip
