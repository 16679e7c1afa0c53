"""Build programs with a C compiler and run them from Python."""

from .arrays import stored_batch, to_numpy
from .cache import cache_folder
from .exchange import set_statistics, set_trained, statistics, trained
from .sample_cache import SampleCache
from .trainer import Trainer

__all__ = [
    "SampleCache", "Trainer", "cache_folder", "set_statistics", "set_trained", "statistics",
    "stored_batch", "to_numpy", "trained",
]  # fmt: skip
