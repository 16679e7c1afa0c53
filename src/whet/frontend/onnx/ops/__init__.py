"""The rows of the table, by kind of operator. Importing this package registers all of them."""

from . import (
    attention,
    control,
    convolution,
    elementwise,
    losses,
    moving,
    normalising,
    pooling,
    quantized,
    recurrent,
    reducing,
    resizing,
    sampling,
    sequences,
    signal,
)

__all__ = [
    "attention",
    "control",
    "convolution",
    "elementwise",
    "losses",
    "moving",
    "normalising",
    "pooling",
    "quantized",
    "recurrent",
    "reducing",
    "resizing",
    "sampling",
    "sequences",
    "signal",
]
