"""Scales and zero points by name: all that separates an integer network from a float one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..ir import Array
from ..ops.settle import LIMITS
from ..quant import HIGH, Quant


@dataclass(frozen=True)
class Recipe:
    """How each value is quantized, by its name in the graph, and each weight, by output channel.

    A calibration makes one, and so does whoever brings a network that is quantized already.
    """

    values: Mapping[str, Quant] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)


def weight_scales(weight: Array, axis: int) -> Array:
    """Per output channel, symmetric: the largest weight becomes 127."""
    others = tuple(i for i in range(weight.ndim) if i != axis % weight.ndim)
    top = np.abs(weight).max(axis=others)
    return np.where(top > 0, top / HIGH, 1.0)


def to_integers(array: Array, scales: Array, dtype: type[np.signedinteger]) -> Array:
    """array / scales, rounded, held in the range of weights or of biases."""
    low, high = LIMITS[np.dtype(dtype).itemsize]
    return np.clip(np.rint(array / scales), low, high).astype(dtype)
