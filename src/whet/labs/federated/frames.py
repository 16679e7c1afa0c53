"""What a gateway and its clients say to each other: frames with a header, and numbers in them.

    bytes    what
    0..3     "WHGW"
    4        version of the protocol, 1
    5        kind: 1 about, 2 train, 3 evaluate; in replies 0 for an answer, 255 for an error
    6..7     zero
    8..11    length of the body
    12..     the body

Numbers are little-endian. An error's body is its text in UTF-8. Arrays are a count (u16), then for
each the length of its name (u16), the name in UTF-8, the number of its axes (u8), their sizes
(u32 each) and float32 numbers. A body ends exactly behind what it holds. Nothing is allocated
before the bytes for it are there.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from ...errors import DataError
from .local import Arrays, Local, Score

MAGIC, VERSION = b"WHGW", 1
HEADER = struct.Struct("<4sBBHI")
TASK = struct.Struct("<IIIIdd")  # round, client, epochs, seed, learning rate or NaN, mu
SCORE = struct.Struct("<ddI")
RESULT = struct.Struct("<dI")  # mean loss, examples; the update follows
ABOUT = struct.Struct("<IIII")
AXES = 8  # at most
PIECE = 1 << 16


class Kind(IntEnum):
    ANSWER = 0
    ABOUT = 1
    TRAIN = 2
    EVALUATE = 3
    ERROR = 255


@dataclass(frozen=True)
class About:
    """What a gateway has: the model's fingerprint, and how many there are of each."""

    fingerprint: int
    coordinates: int
    examples: int
    test_examples: int


@dataclass(frozen=True)
class Task:
    """What to do in a round: `Local`, and what makes the order of the samples."""

    round: int
    client: int
    local: Local

    def pack(self) -> bytes:
        local = self.local
        rate = math.nan if local.lr is None else local.lr
        words = (self.round, self.client, local.epochs, local.seed)
        if not all(0 <= word < 2**32 for word in words):
            raise DataError(f"round, client, epochs and seed are {words}, not all of 32 bits")
        return TASK.pack(*words, rate, local.mu)

    @classmethod
    def unpack(cls, body: memoryview) -> Task:
        turn, client, epochs, seed, rate, mu = TASK.unpack(taken(body, 0, TASK.size))
        return cls(turn, client, Local(epochs, None if math.isnan(rate) else rate, mu, seed))


@dataclass(frozen=True)
class Trained:
    """The answer to a task: the bytes of an update, see runtime/update.py."""

    loss: float
    examples: int
    update: bytes


def pack_score(score: Score) -> bytes:
    return SCORE.pack(score.accuracy, score.loss, score.examples)


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    parts = [struct.pack("<H", len(arrays))]
    for name, given in arrays.items():
        array, letters = np.asarray(given), name.encode()
        parts += [struct.pack("<H", len(letters)), letters]
        parts += [struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        parts += [np.ascontiguousarray(array, "<f4").tobytes()]
    return b"".join(parts)


def unpack_arrays(body: memoryview) -> Arrays:
    """DataError for anything that `pack_arrays` does not write."""
    (count,), at = struct.unpack("<H", taken(body, 0, 2)), 2
    found: Arrays = {}
    for _ in range(count):
        (length,), at = struct.unpack("<H", taken(body, at, 2)), at + 2
        try:
            name, at = str(taken(body, at, length), "utf-8"), at + length
        except UnicodeDecodeError:
            raise DataError("the name of an array is not UTF-8") from None
        axes, at = taken(body, at, 1)[0], at + 1
        if axes > AXES:
            raise DataError(f"an array has {axes} axes", why=f"at most {AXES} are known")
        shape, at = struct.unpack(f"<{axes}I", taken(body, at, 4 * axes)), at + 4 * axes
        size = math.prod(shape)
        numbers, at = np.frombuffer(taken(body, at, 4 * size), "<f4", size), at + 4 * size
        if name in found:
            raise DataError(f"the array {name[:80]!r} comes twice")
        try:
            found[name] = numbers.reshape(shape)
        except ValueError:  # without elements: the product of the other sizes may overflow
            raise DataError(f"an array of shape {shape} cannot be") from None
    if at != len(body):
        raise DataError(f"{len(body) - at:,} bytes follow the last array")
    return found


def taken(body: memoryview, at: int, size: int) -> memoryview:
    if len(body) - at < size:
        raise DataError("the request is cut", why=f"{at + size - len(body):,} bytes are missing")
    return body[at : at + size]


# Over a socket -------------------------------------------------------------------------------


def send(line: socket.socket, kind: Kind, body: bytes) -> None:
    line.sendall(HEADER.pack(MAGIC, VERSION, kind, 0, len(body)) + body)


def receive(line: socket.socket, most: int, seconds: float) -> tuple[int, memoryview]:
    """A kind and a body, which are there within as many seconds.

    DataError if it is no frame, or longer than `most`; ConnectionError or TimeoutError if it ends.
    """
    until = time.monotonic() + seconds
    head = exactly(line, HEADER.size, until)
    magic, version, kind, zero, length = HEADER.unpack(head)
    if magic != MAGIC:
        raise DataError("this is not the protocol of a gateway", why=f"it begins with {magic!r}")
    if version != VERSION:
        raise DataError(f"the protocol's version is {version}", why=f"this is {VERSION}")
    if zero:
        raise DataError("the reserved bytes are not zero")
    if length > most:
        raise DataError(f"{length:,} bytes are announced", why=f"at most {most:,} are expected")
    return kind, memoryview(exactly(line, length, until))


def exactly(line: socket.socket, size: int, until: float) -> bytes:
    parts = []
    while size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it takes too long")
        line.settimeout(left)
        parts.append(line.recv(min(size, PIECE)))
        if not parts[-1]:
            raise ConnectionError("the other side is gone")
        size -= len(parts[-1])
    return b"".join(parts)
