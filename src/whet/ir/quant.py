"""The quantization of int8 numbers, and a recipe by name for a whole network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import DataError
from .graph import Array

LOW, HIGH = -128, 127


@dataclass(frozen=True)
class Quant:
    """The int8 number q represents (q - zero) * scale."""

    scale: float
    zero: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0 and LOW <= self.zero <= HIGH):
            raise DataError(
                f"{self} is not a valid quantization",
                try_="a positive scale, and a zero point that fits into int8",
            )

    @classmethod
    def of_range(cls, low: float, high: float) -> Quant:
        """The finest quantization that covers low to high and represents 0 exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / (HIGH - LOW)
        if scale < 1e-30:  # only zeros were seen, but the values may grow
            return cls.of_range(-1.0, 1.0)
        return cls(float(scale), int(np.clip(np.rint(LOW - low / scale), LOW, HIGH)))

    def number(self, x: float) -> int:
        """The q nearest to a real number."""
        return int(np.clip(np.rint(x / self.scale) + self.zero, LOW, HIGH))

    def real(self, q: int) -> float:
        return (q - self.zero) * self.scale

    def quantize(self, x: Array) -> Array:
        """Like the operator `requantize`."""
        wide = np.asarray(x, np.float32) * np.float32(1 / self.scale)
        return np.clip(np.rint(np.nan_to_num(wide)) + self.zero, LOW, HIGH).astype(np.int8)

    def dequantize(self, q: Array) -> Array:
        return (q.astype(np.float32) - self.zero) * np.float32(self.scale)


@dataclass(frozen=True)
class Fold:
    """The effect of a batch norm folded into a parameter: p * scale + shift, by channel."""

    scale: Array
    shift: Array


@dataclass(frozen=True)
class Recipe:
    """The quantization of each value, by its name in the graph, and of each weight, by output
    channel.

    Calibration creates one, and so do importers of networks that are already quantized.
    """

    values: Mapping[str, Quant] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)
