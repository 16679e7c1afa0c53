"""Handlers for aten operators, by family. Importing this package registers all of them."""

from . import (
    attention,
    convolution,
    elementwise,
    integers,
    largest,
    losses,
    moving,
    normalising,
    pooling,
    recurrent,
    reducing,
    rounding,
)

__all__ = [
    "attention",
    "convolution",
    "elementwise",
    "integers",
    "largest",
    "losses",
    "moving",
    "normalising",
    "pooling",
    "recurrent",
    "reducing",
    "rounding",
]
