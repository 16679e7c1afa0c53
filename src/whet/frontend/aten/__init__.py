"""Handlers for aten operators, by family. Importing this package registers all of them."""

from . import attention, convolution, elementwise, losses, moving, normalising, pooling, reducing

__all__ = [
    "attention",
    "convolution",
    "elementwise",
    "losses",
    "moving",
    "normalising",
    "pooling",
    "reducing",
]
