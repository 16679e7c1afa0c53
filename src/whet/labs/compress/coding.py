"""Numbers below 256 as bits: packed in equal widths, or in a canonical Huffman code.

The first bit of a stream is the most significant bit of its first byte, and codes begin with their
most significant bit. A canonical code is given by the lengths of its codes alone: codes are
consecutive numbers, ordered by length, then by symbol.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LONGEST = 15  # bits of a code: a length fits half a byte
BLOCK = 1 << 20  # symbols to encode, or bits to decode, at a time


def pack(symbols: Array, width: int) -> bytes:
    """Each symbol in `width` bits, 0 to 8."""
    bits = np.unpackbits(symbols.astype(np.uint8)[:, None], axis=1)[:, 8 - width :]
    return np.packbits(bits).tobytes()


def unpack(data: memoryview, count: int, width: int) -> Array:
    """The inverse of `pack`; ValueError where these are not the bytes of so many symbols."""
    if len(data) != (count * width + 7) // 8:
        raise ValueError(f"{count:,} numbers of {width} bits do not take {len(data):,} bytes")
    if not width:
        return np.zeros(count, np.uint8)
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    if bits[count * width :].any():
        raise ValueError("bits after the last number are not 0")
    columns = bits[: count * width].reshape(count, width)
    return np.packbits(np.pad(columns, ((0, 0), (8 - width, 0))), axis=1).ravel()


def code_lengths(counts: Array) -> Array:
    """Bits of the code of each symbol, at the least total for codes of at most LONGEST bits.

    0 for symbols that do not occur. There must be two that do.
    """
    used = np.flatnonzero(counts)
    lengths = np.zeros(len(counts), np.uint8)
    lengths[used] = huffman([int(n) for n in counts[used]])
    if lengths.max() > LONGEST:
        lengths[used] = package_merge([int(n) for n in counts[used]])
    return lengths


def huffman(counts: list[int]) -> list[int]:
    """Merge the two rarest groups until one is left; each merge adds a bit to their members."""
    heap = [(count, i, [i]) for i, count in enumerate(counts)]
    heapq.heapify(heap)
    lengths = [0] * len(counts)
    while len(heap) > 1:
        a, _, left = heapq.heappop(heap)
        b, order, right = heapq.heappop(heap)
        for i in (merged := left + right):
            lengths[i] += 1
        heapq.heappush(heap, (a + b, order, merged))
    return lengths


def package_merge(counts: list[int]) -> list[int]:
    """Optimal lengths of at most LONGEST bits (Larmore and Hirschberg, 1990)."""
    coins = sorted((count, (i,)) for i, count in enumerate(counts))
    packages: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(LONGEST):
        row = sorted(coins + packages)
        pairs = zip(row[::2], row[1::2], strict=False)
        packages = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]
    lengths = [0] * len(counts)
    for _, members in packages[: len(counts) - 1]:
        for i in members:
            lengths[i] += 1
    return lengths


def in_order(lengths: Array) -> Array:
    """The symbols that have a code, by the order of their codes."""
    order = np.argsort(lengths, kind="stable")
    return order[lengths[order] > 0]


def encode(symbols: Array, lengths: Array) -> bytes:
    order = in_order(lengths)
    longest = int(lengths.max())
    widths = lengths[order].astype(np.int64)
    ends = np.cumsum(1 << (longest - widths))  # codes, aligned left, are sums of those before
    aligned = np.zeros(len(lengths), np.uint16)
    aligned[order] = np.append(0, ends[:-1])
    rows = (aligned[:, None] >> np.arange(longest - 1, -1, -1)).astype(np.uint8) & 1
    within = np.arange(longest) < lengths[:, None]
    parts = [symbols[i : i + BLOCK] for i in range(0, len(symbols), BLOCK)]
    bits = [rows[part][within[part]] for part in parts]
    return np.packbits(np.concatenate(bits)).tobytes()


def decode(data: memoryview, count: int, lengths: Array) -> Array:
    """The inverse of `encode`; ValueError, which says why, for anything else.

    A table has the symbol and the length for each value of the next bits, and NumPy looks up every
    position of the stream. All that is left for Python is to walk from code to code.
    """
    longest = int(lengths.max(initial=0))
    order = in_order(lengths)
    widths = lengths[order].astype(np.int64)
    if longest == 0 or (1 << (longest - widths)).sum() != 1 << longest:
        raise ValueError("the lengths of the Huffman codes do not form a code")
    if count > 8 * len(data):
        raise ValueError(f"{count:,} Huffman codes do not fit into {len(data):,} bytes")
    symbol = np.repeat(order, 1 << (longest - widths)).astype(np.uint8)
    found, at, rest = [], 0, count
    for first, windows in lookahead(data, longest):
        steps = lengths[symbol[windows]].tobytes()
        starts, at = walk(steps, at - first, rest)
        found.append(symbol[windows[starts]])
        at, rest = at + first, rest - len(starts)
    if rest or (at + 7) // 8 != len(data):
        raise ValueError(f"{count:,} Huffman codes do not take {len(data):,} bytes")
    if at % 8 and data[-1] & (0xFF >> at % 8):
        raise ValueError("bits after the last Huffman code are not 0")
    return np.concatenate(found) if found else np.zeros(0, np.uint8)


def walk(steps: bytes, at: int, most: int) -> tuple[list[int], int]:
    """Positions from `at` on, each a step after the one before, and the first one outside."""
    starts: list[int] = []
    end = len(steps)
    while at < end and len(starts) < most:
        starts.append(at)
        at += steps[at]
    return starts, at


def lookahead(data: memoryview, width: int) -> Iterator[tuple[int, Array]]:
    """The next `width` bits at every bit of the data, in blocks that begin at a given bit."""
    padded = np.append(np.frombuffer(data, np.uint8), np.zeros(2, np.uint8)).astype(np.uint32)
    for first in range(0, len(data), BLOCK // 8):
        part = padded[first : first + BLOCK // 8 + 2]
        three = part[:-2] << 16 | part[1:-1] << 8 | part[2:]
        shifts = np.arange(24 - width, 16 - width, -1, dtype=np.uint32)
        windows = (three[:, None] >> shifts) & np.uint32((1 << width) - 1)
        yield 8 * first, windows.ravel()
