"""Federated learning: devices learn together and send updates, not data."""

from .dgc import Compression, Compressor
from .distributed import distributed

__all__ = ["Compression", "Compressor", "distributed"]
