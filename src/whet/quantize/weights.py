"""Weights and biases as whole numbers."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from ..ops.settle import LIMITS
from ..quant import HIGH


def weight_scales(weight: Array, axis: int) -> Array:
    """Per output channel, symmetric: the largest weight becomes 127."""
    others = tuple(i for i in range(weight.ndim) if i != axis % weight.ndim)
    top = np.abs(weight).max(axis=others)
    return np.where(top > 0, top / HIGH, 1.0)


def to_integers(array: Array, scales: Array, dtype: type[np.signedinteger]) -> Array:
    """array / scales, rounded, held in the range of weights or of biases."""
    low, high = LIMITS[np.dtype(dtype).itemsize]
    return np.clip(np.rint(array / scales), low, high).astype(dtype)
