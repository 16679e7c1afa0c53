"""Numbers in bf16: the upper 16 bits of an f32, with its sign, exponent and 7 bits of fraction.

NumPy has no such type, so arrays of them are arrays of bits. `whet_moments.h` does the same.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array

GOLDEN = np.uint32(0x9E3779B1)  # 2^32 times the golden ratio's fraction


def widened(bits: Array) -> Array:
    """The numbers, in f32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def nearest(x: Array) -> Array:
    """Rounded to the nearest; halves to the even one. NaN stays NaN."""
    bits = np.asarray(x, np.float32, order="C").view(np.uint32)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    quiet = bits | np.uint32(1 << 22)
    return (np.where(np.isnan(x), quiet, bits + half) >> np.uint32(16)).astype(np.uint16)


def dithered(x: Array, step: float) -> Array:
    """Rounded down or up, in turn, in the proportion that makes the mean over the steps right.

    What is added before the lower half is cut off are multiples of the golden ratio, which are
    spread evenly over any number of successive steps, and of neighbours.
    """
    bits = np.asarray(x, np.float32, order="C").view(np.uint32)
    turns = (np.arange(bits.size, dtype=np.uint32) + np.uint32(step)) * GOLDEN >> np.uint32(16)
    return ((bits + turns.reshape(bits.shape)) >> np.uint32(16)).astype(np.uint16)
