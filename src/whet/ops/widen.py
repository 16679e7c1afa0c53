"""Weights that are stored in 8 bits and used in 32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir import Array, Attributes, Call, DType, Node, Op, Type
from ._common import require, require_f32

AT_ONCE = 1 << 19  # elements


class Widen(Op):
    """y = x * scale[c], from i8; channels are the first axis, or the last one"""

    name = "widen"
    floats_as_integers = True

    class Attrs(Attributes):
        last: bool = False

    @staticmethod
    def infer(a: Attrs, x: Type, scale: Type) -> Type:
        require(x.dtype is DType.I8 and x.rank > 0, f"needs i8 with channels, got {x}")
        require_f32(scale)
        channels = x.shape[-1 if a.last else 0]
        require(scale.shape == (channels,), f"{scale} is not a scale of {channels} channels")
        return Type(DType.F32, x.shape)

    @staticmethod
    def ref(a: Attrs, x: Array, scale: Array) -> Array:
        by_channel = scale if a.last else scale.reshape(-1, *(1,) * (x.ndim - 1))
        return x.astype(scale.dtype) * by_channel

    @staticmethod
    def call(node: Node) -> Call:
        x, scale = node.ins
        channels = scale.type.elements
        inner = 1 if node.attrs.last else x.type.elements // channels
        outer = x.type.elements // (channels * inner)
        return Call("whet_widen_i8", (node.out, x, scale, outer, channels, inner), "widen")


def narrowed(weight: Array, last: bool, tolerance: float = 1e-6) -> tuple[Array, Array] | None:
    """Integers and a scale for each channel that make up a weight; None if there are none."""
    axes = tuple(range(weight.ndim - 1)) if last else tuple(range(1, weight.ndim))
    most = np.maximum(weight.max(axis=axes), -weight.min(axis=axes))
    if not np.all(np.isfinite(most)):
        return None
    integers = np.empty(weight.shape, np.int8)
    for bits in range(8, 1, -1):  # rounded to fewer, the largest has fewer steps
        steps = 2 ** (bits - 1) - 1
        scale = (np.where(most > 0, most, 1.0) / steps).astype(np.float32)
        wide = np.broadcast_to(scale if last else scale.reshape(-1, *(1,) * (weight.ndim - 1)),
                               weight.shape)  # fmt: skip
        for rows in some_rows(weight):
            q = np.rint(weight[rows] / wide[rows])
            if not np.all(np.abs(q * wide[rows] - weight[rows]) <= tolerance * steps * wide[rows]):
                break
            integers[rows] = q
        else:
            return integers, scale
    return None


def some_rows(weight: Array) -> Iterator[slice]:
    """Its rows, a few at a time, so that what is in between takes a few MB."""
    count = max(1, AT_ONCE * len(weight) // max(1, weight.size))
    return (slice(first, first + count) for first in range(0, len(weight), count))
