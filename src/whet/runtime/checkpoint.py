"""The format of checkpoints, and the one codec that reads and writes them in Python.

    bytes    what
    0..3     "WHET"
    4..7     version of the format, 1
    8..11    fingerprint of the model and of what trains, see `Program.fingerprint`
    12..15   CRC-32 (IEEE 802.3) of the payload
    16..23   bytes of the payload
    24..     payload: the structs `params` and `state` of net_t, as C lays them out

Numbers are little-endian. The generated functions net_save and net_load, by way of
kernels/ref/checkpoint.c, are the same codec in C and refuse the same bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..emit.memory import up
from ..errors import CheckpointError
from ..ir import Array, Type

if TYPE_CHECKING:
    from ..emit.program import Program

MAGIC, VERSION = b"WHET", 1
HEADER = struct.Struct("<4sIIIQ")
BY_NAMES = "load_state_dict(other.state_dict()), which goes by names"


@dataclass(frozen=True)
class Checkpoint:
    """Trained parameters and state by name, each as it lies in the program's memory."""

    model: int  # the fingerprint
    arrays: Mapping[str, Array]


@dataclass(frozen=True)
class Layout:
    """What a program's checkpoints hold, and where."""

    model: int
    structs: tuple[Mapping[str, Type], ...]  # members in order

    @classmethod
    def of(cls, program: Program) -> Layout:
        return cls(program.fingerprint, (program.storage.params, program.storage.state))

    def encode(self, checkpoint: Checkpoint) -> bytes:
        if checkpoint.model != self.model:
            raise refused("it belongs to another model", try_=BY_NAMES)
        payload = bytearray(self.size)
        for name, kind, offset in self.members:
            array = checkpoint.arrays.get(name)
            dtype = np.dtype(kind.dtype.numpy)
            if array is None or (array.dtype, array.shape) != (dtype, kind.shape):
                found = "is missing" if array is None else f"is {array.dtype}{list(array.shape)}"
                raise refused(f"{name} {found}", f"the program has {kind}")
            payload[offset : offset + kind.bytes] = little(array).tobytes()
        return HEADER.pack(MAGIC, VERSION, self.model, zlib.crc32(payload), self.size) + payload

    def decode(self, blob: bytes, where: str = "checkpoint") -> Checkpoint:
        """CheckpointError, which says why, if these are not the bytes of such a checkpoint."""
        self._check(blob, f"{where}, {len(blob)} bytes")
        payload = memoryview(blob)[HEADER.size :]
        arrays = {}
        for name, kind, offset in self.members:
            dtype = np.dtype(kind.dtype.numpy).newbyteorder("<")
            flat = np.frombuffer(payload, dtype, kind.elements, offset)
            arrays[name] = flat.astype(kind.dtype.numpy).reshape(kind.shape)
        return Checkpoint(self.model, arrays)

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return self._placed[1]

    @property
    def members(self) -> list[tuple[str, Type, int]]:
        """Every array, and where it begins in the payload."""
        return self._placed[0]

    @cached_property
    def _placed(self) -> tuple[list[tuple[str, Type, int]], int]:
        """As C does: a member begins at a multiple of the size of its elements, and a struct ends
        at a multiple of the largest of those."""
        found, start = [], 0
        for table in self.structs:
            at = 0
            for name, kind in table.items():
                at = up(at, kind.dtype.size)
                found.append((name, kind, start + at))
                at += kind.bytes
            start += up(at, max((kind.dtype.size for kind in table.values()), default=1))
        return found, start

    def _check(self, blob: bytes, at: str) -> None:
        """In the order in which C checks, so that both find the same fault first."""
        if len(blob) < HEADER.size:
            why = f"the header alone has {HEADER.size} bytes"
            raise refused("the checkpoint is shorter than it says", why, at)
        magic, version, model, crc, size = HEADER.unpack_from(blob)
        if magic != MAGIC:
            raise refused("it is not a checkpoint", f"it begins with {magic!r}", at)
        if version != VERSION:
            why = f"its version is {version}, this program reads {VERSION}"
            raise refused("it has another version of the format", why, at)
        if (model, size) != (self.model, self.size):
            whys = tuple(self._others(size))
            raise refused("the checkpoint belongs to another model or scheme", whys, at, BY_NAMES)
        if len(blob) != (whole := HEADER.size + size):
            word = "shorter" if len(blob) < whole else "longer"
            raise refused(f"the checkpoint is {word} than it says", f"it says {whole} bytes", at)
        if zlib.crc32(memoryview(blob)[HEADER.size :]) != crc:
            raise refused("the checkpoint's checksum is wrong", "a byte of it was changed", at)

    def _others(self, size: int) -> Iterator[str]:
        """What can be told of a checkpoint with another fingerprint or size."""
        if size != self.size:
            yield f"it holds {size:,} bytes of parameters and state, this program {self.size:,}"
        else:
            yield "it holds as many bytes, but the model, or what does not train of it, differs"
        yield "what trains, and the optimizer, must be the same too"


def refused(
    what: str, why: str | Sequence[str] = (), at: str = "", try_: str = ""
) -> CheckpointError:
    return CheckpointError(f"the checkpoint is refused: {what}", at=at, why=why, try_=try_)


def little(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
