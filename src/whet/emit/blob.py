"""The content of weights.bin: made when it is written, one array at a time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..ir import Array, Type

WEIGHTS = "weights.bin"
HEADER = 64  # bytes before the arrays of a file that is mapped; see kernels/ref/map.c
MAGIC = b"whetwts1"
AT_ONCE = 1 << 22  # bytes of a file that are compared at a time


class Blob:
    """Arrays one after the other, each a multiple of `align` bytes from the start of the file.

    Equal to the bytes that it stands for. With `mapped`, a header says which file it is: its size,
    and a checksum of it all.
    """

    def __init__(
        self,
        arrays: Mapping[str, Callable[[], Array]],
        types: Mapping[str, Type],
        align: int = 1,
        mapped: bool = False,
    ) -> None:
        self.arrays, self.offsets, self.mapped = arrays, {}, mapped
        at = HEADER if mapped else 0
        for name in arrays:
            self.offsets[name] = at = -(-at // align) * align
            at += types[name].bytes
        self.size = at
        self.identity = self.checksum() if mapped else 0

    def checksum(self) -> int:
        """Of the names, the places and the content of all arrays."""
        crc = zlib.crc32(repr(self.offsets).encode())
        for make in self.arrays.values():
            crc = zlib.crc32(view(make()), crc)
        return crc

    @property
    def header(self) -> bytes:
        return struct.pack("<8sQQ", MAGIC, self.size, self.identity).ljust(HEADER, b"\0")

    def chunks(self) -> Iterator[bytes | memoryview]:
        at = 0
        if self.mapped:
            yield self.header
            at = HEADER
        for name, make in self.arrays.items():
            yield bytes(self.offsets[name] - at)
            content = view(make())
            yield content
            at = self.offsets[name] + len(content)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.chunks())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Blob):
            pairs = zip_longest(self.chunks(), other.chunks())
            return self.size == other.size and all(a == b for a, b in pairs)
        return isinstance(other, bytes) and bytes(self) == other

    __hash__ = None  # type: ignore[assignment]

    def is_in(self, path: Path) -> bool:
        """Whether the file has this content."""
        if not path.exists() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            for chunk in self.chunks():
                for i in range(0, len(chunk), AT_ONCE):
                    part = chunk[i : i + AT_ONCE]
                    if file.read(len(part)) != part:
                        return False
        return True

    def write(self, file: BinaryIO) -> None:
        """To a new file: programs may have mapped the old one."""
        for chunk in self.chunks():
            file.write(chunk)


def view(array: Array) -> memoryview:
    """Its bytes, not copied."""
    return array.reshape(-1).view(np.uint8).data
