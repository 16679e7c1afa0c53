"""The fields of a compressed file: numbers, streams of coded symbols, and arrays of values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from .coding import Array, code_lengths, decode, encode, pack, unpack

HUFFMAN = 16  # the form of a stream; below it, the bits of a packed number
LARGEST = 2**63  # numbers in a file are smaller
TYPES = ("<f4", "<f2", "<f8", "|i1", "|u1", "<i2", "<i4", "<i8", "|b1")


class Damaged(ValueError):
    """What is wrong with the bytes of a file."""


@dataclass
class Writer:
    """Bytes, and how many of them are of each kind."""

    data: bytearray = field(default_factory=bytearray)
    kinds: Counter[str] = field(default_factory=Counter)

    def put(self, kind: str, data: bytes) -> None:
        self.data += data
        self.kinds[kind] += len(data)

    def byte(self, value: int) -> None:
        self.put("header", bytes([value]))

    def number(self, value: int) -> None:
        """In LEB128: seven bits a byte, the lowest first, the top bit set on all but the last."""
        septets = [value >> at & 0x7F for at in range(0, max(value.bit_length(), 1), 7)]
        self.put("header", bytes([*(s | 0x80 for s in septets[:-1]), septets[-1]]))

    def values(self, kind: str, values: Array) -> None:
        """In the smallest type that holds each of them exactly."""
        stored = narrowed(values)
        self.byte(TYPES.index(stored.dtype.str))
        self.put(kind, stored.tobytes())

    def stream(self, kind: str, symbols: Array, narrowest: int = 0) -> None:
        """Packed, or Huffman coded where that is smaller, table included."""
        counts = np.bincount(symbols, minlength=1)
        width = max((len(counts) - 1).bit_length(), narrowest)
        lengths = code_lengths(counts) if np.count_nonzero(counts) > 1 else None
        if lengths is None or huffman_bytes(counts, lengths) >= (len(symbols) * width + 7) // 8:
            self.byte(width)
            self.put(kind, pack(symbols, width))
            return
        data = encode(symbols, lengths)
        self.byte(HUFFMAN)
        self.number(len(lengths))
        self.put("tables", pack(lengths, 4))
        self.number(len(data))
        self.put(kind, data)


def huffman_bytes(counts: Array, lengths: Array) -> int:
    """The stream, its table, and about the numbers of both."""
    return (int((counts * lengths.astype(np.int64)).sum()) + 7) // 8 + (len(lengths) + 1) // 2 + 4


def narrowed(values: Array) -> Array:
    """The same values, to the bit, in the smallest type that NumPy casts back safely."""
    own = values.dtype
    with np.errstate(all="ignore"):  # values outside the smaller type
        for name in sorted(TYPES, key=lambda t: np.dtype(t).itemsize):
            smaller = np.dtype(name)
            if smaller.itemsize < own.itemsize and np.can_cast(smaller, own, "safe"):
                found = values.astype(smaller)
                if found.astype(own).tobytes() == values.tobytes():
                    return found
    return values


@dataclass
class Reader:
    """Fields of a file from its start to its end; Damaged where they cannot be."""

    data: memoryview
    at: int = 0

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            left = len(self.data) - self.at
            raise Damaged(f"{count:,} bytes are announced at {self.at:,}, {left:,} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >= LARGEST or shift > 63:
                raise Damaged("a number has more than 63 bits")
            if byte < 0x80:
                return value

    def values(self, count: int, own: np.dtype[np.generic]) -> Values:
        code = self.byte()
        stored = np.dtype(TYPES[code]) if code < len(TYPES) else None
        if stored is None or not np.can_cast(stored, own, "safe"):
            raise Damaged(f"values of type {code} are not of the tensor's type, {own}")
        return Values(self.take(count * stored.itemsize), stored, own)

    def stream(self, count: int, narrowest: int = 0) -> Stream:
        form = self.byte()
        if narrowest <= form <= 8:
            return Stream(count, form, None, self.take((count * form + 7) // 8))
        if form != HUFFMAN:
            raise Damaged(f"{form} is no form of a stream")
        alphabet = self.number()
        if alphabet > 256:
            raise Damaged(f"an alphabet has {alphabet:,} symbols, at most 256 are allowed")
        lengths = unpack(self.take((alphabet + 1) // 2), alphabet, 4)
        return Stream(count, 0, lengths, self.take(self.number()))


@dataclass(frozen=True)
class Stream:
    """Symbols as they lie in the file."""

    count: int
    width: int
    lengths: Array | None  # of Huffman codes
    data: memoryview

    def symbols(self) -> Array:
        if self.lengths is None:
            return unpack(self.data, self.count, self.width)
        return decode(self.data, self.count, self.lengths)


@dataclass(frozen=True)
class Values:
    """Values as they lie in the file."""

    data: memoryview
    stored: np.dtype[np.generic]
    own: np.dtype[np.generic]

    def array(self) -> Array:
        if self.stored.kind == "b" and (np.frombuffer(self.data, np.uint8) > 1).any():
            raise Damaged("a truth value is neither 0 nor 1")
        return np.frombuffer(self.data, self.stored).astype(self.own)
