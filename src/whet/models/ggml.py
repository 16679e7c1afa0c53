"""Numbers as ggml stores them: plain floats, and blocks of 32 or 256 weights with a scale.

Every formula here is evaluated in float32 and in ggml's order, so that a weight has the same bits.
A row of a tensor is a whole number of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CHUNK = 1 << 20  # weights widened at a time, to bound the memory for what lies between


@dataclass(frozen=True)
class Format:
    """`widen` maps blocks, a row of bytes each, to float32, `block` numbers a row."""

    name: str
    block: int  # weights in a block
    bytes: int  # of a block
    widen: Callable[[Array], Array]


def floats(blocks: Array, at: int, count: int = 1) -> Array:
    """Half-precision numbers inside blocks, as float32."""
    halves = np.ascontiguousarray(blocks[:, at : at + 2 * count])
    return halves.view("<f2").astype(np.float32)


def nibbles(blocks: Array) -> Array:
    """All low halves of the bytes, then all high halves."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1)


def fifth_bits(blocks: Array, at: int) -> Array:
    """The bits of 32 weights in four bytes, each worth 16."""
    bits = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    return bits << 4


def widen_f32(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks).view("<f4")


def widen_f16(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def widen_bf16(blocks: Array) -> Array:
    high = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (high << 16).view(np.float32)


def widen_q4_0(blocks: Array) -> Array:
    """d * (q - 8)"""
    return floats(blocks, 0) * (nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def widen_q4_1(blocks: Array) -> Array:
    """d * q + m"""
    return floats(blocks, 0) * nibbles(blocks[:, 4:]).astype(np.float32) + floats(blocks, 2)


def widen_q5_0(blocks: Array) -> Array:
    """d * (q - 16)"""
    q = nibbles(blocks[:, 6:]) | fifth_bits(blocks, 2)
    return floats(blocks, 0) * (q.astype(np.float32) - 16)


def widen_q5_1(blocks: Array) -> Array:
    """d * q + m"""
    q = nibbles(blocks[:, 8:]) | fifth_bits(blocks, 4)
    return floats(blocks, 0) * q.astype(np.float32) + floats(blocks, 2)


def widen_q8_0(blocks: Array) -> Array:
    """d * q"""
    return floats(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def six_bit_scales(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight minima of six bits each, from twelve bytes."""
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def scaled_by_parts(blocks: Array, q: Array) -> Array:
    """d * scale * q - dmin * minimum, for eight parts of 32 weights: q is [blocks, 8, 32]"""
    scales, minima = six_bit_scales(blocks[:, 4:16])
    factor, offset = floats(blocks, 0) * scales, floats(blocks, 2) * minima
    found = factor[:, :, None] * q.astype(np.float32) - offset[:, :, None]
    return found.reshape(len(blocks), 256)


def paired_nibbles(packed: Array) -> Array:
    """128 bytes as eight parts of 32: the low halves of 32 bytes, then their high halves."""
    groups = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)


def widen_q4_k(blocks: Array) -> Array:
    return scaled_by_parts(blocks, paired_nibbles(blocks[:, 16:144]))


def widen_q5_k(blocks: Array) -> Array:
    part = np.arange(8, dtype=np.uint8)[None, :, None]
    fifth = (blocks[:, 16:48].reshape(-1, 1, 32) >> part) & 1
    return scaled_by_parts(blocks, paired_nibbles(blocks[:, 48:176]) | (fifth << 4))


def widen_q6_k(blocks: Array) -> Array:
    """d * scale * (q - 32), for sixteen parts of 16 weights"""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shift = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shift) & 3
    q = (low | (high << 4)).astype(np.float32) - 32
    factor = floats(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    found = factor[:, :, None] * q.reshape(-1, 16, 16)
    return found.reshape(len(blocks), 256)


# By the number that stands for each in a file.
FORMATS = {
    0: Format("F32", 1, 4, widen_f32),
    1: Format("F16", 1, 2, widen_f16),
    2: Format("Q4_0", 32, 18, widen_q4_0),
    3: Format("Q4_1", 32, 20, widen_q4_1),
    6: Format("Q5_0", 32, 22, widen_q5_0),
    7: Format("Q5_1", 32, 24, widen_q5_1),
    8: Format("Q8_0", 32, 34, widen_q8_0),
    12: Format("Q4_K", 256, 144, widen_q4_k),
    13: Format("Q5_K", 256, 176, widen_q5_k),
    14: Format("Q6_K", 256, 210, widen_q6_k),
    30: Format("BF16", 1, 2, widen_bf16),
}

# Formats that files have and whet does not read, for messages.
OTHERS = {
    10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def widened(form: Format, data: Array, shape: tuple[int, ...]) -> Array:
    """All blocks of a tensor, given as bytes, as float32."""
    found = np.empty(math.prod(shape), np.float32)
    blocks, step = data.reshape(-1, form.bytes), max(1, CHUNK // form.block)
    with np.errstate(over="ignore", invalid="ignore"):  # a scale may be infinite or no number
        for first in range(0, len(blocks), step):
            part = form.widen(blocks[first : first + step]).reshape(-1)
            found[first * form.block :][: part.size] = part
    return found.reshape(shape)
