"""Federated learning: devices learn together and send updates, not data."""

from .dgc import Compression, Compressor
from .distributed import distributed
from .guard import Guard
from .guarded import guarded
from .mods import dgc_mod

__all__ = ["Compression", "Compressor", "Guard", "dgc_mod", "distributed", "guarded"]
