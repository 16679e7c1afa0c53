"""Reads GGUF, the format in which llama.cpp stores language models.

A file is a header, metadata (names with values), a list of tensors, and their data. It is mapped
into memory, and a tensor is widened to float32 when it is asked for.

Nothing in a file is trusted: every count, length, offset and shape is compared with the bytes that
there are before anything of that size is made, and what does not fit raises a FrontendError.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import FrontendError
from .ggml import FORMATS, OTHERS, Array, Format, widened

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY, BOOL = 8, 9, 7
NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", BOOL: "<u1",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
LEAST_ENTRY = 8 + 4 + 1  # bytes of the metadata entry with the shortest name and value
LEAST_TENSOR = 8 + 4 + 8 + 4 + 8  # of the description of a tensor with one axis and no name
LEAST_STRING, LEAST_ARRAY = 8, 12
MOST_AXES, MOST_NESTED = 4, 3
ALIGNMENT = "general.alignment"
MOST_ALIGNMENT = 1 << 16


def damaged(what: str, *why: str) -> FrontendError:
    return FrontendError(what, why=why, try_="download the file again, or convert the model anew")


@dataclass(frozen=True, eq=False)
class GgufTensor:
    """A tensor in a file: `shape` as PyTorch has it, rows first."""

    name: str
    shape: tuple[int, ...]
    format: Format
    data: Array  # its bytes, mapped

    def array(self) -> Array:
        """All of it as float32."""
        return widened(self.format, self.data, self.shape)

    def rows(self) -> Array:
        """Its bytes as stored: a line for each row, or for each number if there are no rows."""
        single = len(self.shape) == 1 and self.format.block == 1
        return self.data.reshape(math.prod(self.shape if single else self.shape[:-1]), -1)


@dataclass(frozen=True, eq=False)
class Gguf:
    """What a file holds: metadata by name, and tensors by name."""

    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Gguf:
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise damaged(f"{os.fspath(path)!r} is empty")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise FrontendError(f"{os.fspath(path)!r} cannot be read", why=str(error)) from error
        return cls.parse(mapped)

    @classmethod
    def parse(cls, data: bytes | mmap.mmap) -> Gguf:
        """The same from bytes, which tensors refer to."""
        cursor = Cursor(data)
        version = read_version(cursor)
        tensors, entries = cursor.number("<Q"), cursor.number("<Q")
        cursor.fits("tensors", tensors, LEAST_TENSOR)
        cursor.fits("metadata entries", entries, LEAST_ENTRY)
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = cursor.string()
            if key in metadata:
                raise damaged(f"the metadata has {key!r} twice")
            metadata[key] = cursor.value(cursor.number("<I"))
        described = [read_description(cursor) for _ in range(tensors)]
        start = -(-cursor.at // (alignment := alignment_of(metadata))) * alignment
        return cls(version, metadata, located(data, described, start, alignment))

    def number(self, key: str, default: float | None = None) -> float:
        """A number in the metadata; an error without one, unless there is a default."""
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FrontendError(
                f"the file's metadata has no number {key!r}", why=f"it has {describe(value)}"
            )
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least one."""
        value = self.number(key, default)
        if not isinstance(value, int) or value < 1:
            raise FrontendError(f"{key!r} in the file's metadata is {value}, not a count")
        return value


def describe(value: Any) -> str:
    if value is None:
        return "none of that name"
    return f"an array of {len(value)}" if hasattr(value, "__len__") else repr(value)


class Cursor:
    """Reads one thing after another, never beyond the end."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0

    def take(self, count: int) -> int:
        """The place of the next `count` bytes, which are then read."""
        if count > self.size - self.at:
            raise damaged(
                "the file ends in the middle of its header",
                f"at byte {self.at:,} it says that {count:,} bytes follow, but there are "
                f"{self.size - self.at:,}",
            )
        place, self.at = self.at, self.at + count
        return place

    def fits(self, what: str, count: int, least: int) -> None:
        """An error if there cannot be as many things of `least` bytes each."""
        if count > (self.size - self.at) // least:
            raise damaged(
                f"the file says that it has {count:,} {what}",
                f"there is room for {(self.size - self.at) // least:,} at byte {self.at:,}",
            )

    def number(self, code: str) -> int:
        (found,) = struct.unpack_from(code, self.data, self.take(struct.calcsize(code)))
        return int(found)

    def string(self) -> str:
        length = self.number("<Q")
        place = self.take(length)
        try:
            return self.data[place : place + length].decode()
        except UnicodeDecodeError as error:
            raise damaged(f"a text at byte {place:,} is not UTF-8", str(error)) from None

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array(depth)
        if kind not in NUMBERS:
            raise damaged(f"a metadata value at byte {self.at:,} is of unknown type {kind}")
        return self.numbers(kind, 1)[0].item()

    def numbers(self, kind: int, count: int) -> Array:
        width = np.dtype(NUMBERS[kind]).itemsize
        self.fits("numbers", count, width)
        found = np.frombuffer(self.data, NUMBERS[kind], count, self.take(count * width))
        if kind != BOOL:
            return found.copy()
        if (found > 1).any():
            raise damaged(f"a truth value before byte {self.at:,} is {found.max()}")
        return found.astype(np.bool_)

    def array(self, depth: int) -> Any:
        """Numbers as an array, others as a list."""
        kind, count = self.number("<I"), self.number("<Q")
        if kind in NUMBERS:
            return self.numbers(kind, count)
        if depth == MOST_NESTED:
            raise damaged(f"arrays at byte {self.at:,} are nested more than {MOST_NESTED} deep")
        self.fits("values", count, LEAST_STRING if kind == STRING else LEAST_ARRAY)
        return [self.value(kind, depth + 1) for _ in range(count)]


def read_version(cursor: Cursor) -> int:
    place = cursor.take(4)
    if cursor.data[place : place + 4] != MAGIC:
        raise FrontendError(
            "this is not a GGUF file",
            why=f"it starts with {cursor.data[place : place + 4]!r}, not {MAGIC!r}",
        )
    version = cursor.number("<I")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        raise FrontendError(
            "this GGUF file is of a big-endian machine" if swapped
            else f"this is GGUF version {version}, which whet does not read",
            why=f"it reads versions {VERSIONS[0]} and {VERSIONS[1]}, little-endian",
            try_="convert the model anew with a current llama.cpp",
        )  # fmt: skip
    return version


Description = tuple[str, tuple[int, ...], int, int]  # name, shape, format, offset


def read_description(cursor: Cursor) -> Description:
    name, axes = cursor.string(), cursor.number("<I")
    if not 1 <= axes <= MOST_AXES:
        raise damaged(f"tensor {name!r} has {axes} axes; there are 1 to {MOST_AXES}")
    sizes = [cursor.number("<Q") for _ in range(axes)]
    return name, tuple(reversed(sizes)), cursor.number("<I"), cursor.number("<Q")


def alignment_of(metadata: Mapping[str, Any]) -> int:
    value = metadata.get(ALIGNMENT, 32)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MOST_ALIGNMENT or value & (value - 1):
        raise damaged(f"{ALIGNMENT} is {describe(value)}, not a power of two")
    return int(value)


def located(
    data: bytes | mmap.mmap, described: list[Description], start: int, alignment: int
) -> dict[str, GgufTensor]:
    """Tensors with their bytes, none of which belong to two."""
    found: dict[str, GgufTensor] = {}
    places: list[tuple[int, int, str]] = []
    whole = np.frombuffer(data, np.uint8)
    for name, shape, kind, offset in described:
        if name in found:
            raise damaged(f"there are two tensors {name!r}")
        form = format_of(name, kind)
        count = bytes_of(name, shape, form)
        if offset % alignment or start + offset + count > len(whole):
            raise damaged(
                f"tensor {name!r} does not lie in the file",
                f"it would take {count:,} bytes at {start + offset:,}; the file has {len(whole):,} "
                f"bytes, and tensors start at multiples of {alignment}",
            )
        found[name] = GgufTensor(name, shape, form, whole[start + offset :][:count])
        places.append((offset, offset + count, name))
    for (_, end, first), (begin, _, second) in pairwise(sorted(places)):
        if begin < end:
            raise damaged(f"tensors {first!r} and {second!r} overlap")
    return found


def format_of(name: str, kind: int) -> Format:
    if kind not in FORMATS:
        raise FrontendError(
            f"tensor {name!r} is stored as {OTHERS.get(kind, f'type {kind}')}, which whet does not "
            "read",
            try_=f"a file of {', '.join(form.name for form in FORMATS.values())}",
        )
    return FORMATS[kind]


def bytes_of(name: str, shape: tuple[int, ...], form: Format) -> int:
    if min(shape) < 1:
        raise damaged(f"tensor {name!r} has the shape {shape}")
    if shape[-1] % form.block:
        raise damaged(
            f"tensor {name!r} has rows of {shape[-1]:,} weights",
            f"{form.name} stores blocks of {form.block}",
        )
    return math.prod(shape) // form.block * form.bytes
