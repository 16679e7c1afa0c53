"""Weights and biases as whole numbers."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from ..ir.quant import HIGH
from ..ops.settle import LIMITS, MOST


def weight_scales(weight: Array, axis: int, bias: Array | None, x_scale: float) -> Array:
    """Per output channel, symmetric: the largest weight becomes 127.

    A channel of zeros, which is to learn, gets a step like those of the others, or of a fresh
    layer. A channel of tiny weights gets a step that leaves room for its bias.
    """
    others = tuple(i for i in range(weight.ndim) if i != axis % weight.ndim)
    steps = np.abs(weight).max(axis=others) / HIGH
    fresh = (weight.size / steps.size) ** -0.5 / HIGH
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else fresh
    steps = np.where(steps > 0, steps, usual)
    if bias is None:
        return steps
    return np.maximum(steps, 2 * np.abs(bias) / (x_scale * MOST))


def to_integers(array: Array, scales: Array, dtype: type[np.signedinteger]) -> Array:
    """array / scales, rounded, held in the range of weights or of biases."""
    low, high = LIMITS[np.dtype(dtype).itemsize]
    return np.clip(np.rint(array / scales), low, high).astype(dtype)
