"""What the frozen layers of a program made of samples, kept from one epoch to the next."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..ir import Array
from ..memory.sizes import parse_bytes

if TYPE_CHECKING:
    from ..emit.program import Program


class SampleCache:
    """Results of the frozen layers by the ids of samples, for `trainer.cache`.

    It holds up to `limit` bytes, in memory or in the file `path`; the samples that were not used
    for the longest time make room for others. The file is written anew, and is of use to this
    process only.
    """

    def __init__(self, limit: int | str = "1G", path: str | Path | None = None) -> None:
        self.limit = parse_bytes(limit)
        self.hits = self.misses = 0
        self._records: OrderedDict[Hashable, Any] = OrderedDict()  # or where they are in the file
        self._file = None if path is None else _File(path)
        self._program: Program | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, sample: Hashable) -> bool:
        return sample in self._records

    def __repr__(self) -> str:
        return f"<SampleCache of {len(self):,} samples, {self.bytes:,} of {self.limit:,} bytes>"

    @property
    def bytes(self) -> int:
        """Of what it holds."""
        return len(self) * self._program.kept_bytes if self._program else 0

    def clear(self) -> None:
        """Forget all samples."""
        self._records.clear()

    def bind(self, program: Program) -> None:
        """Use it for this program, and no other."""
        if self._program is program:
            return
        if self._program is not None:
            raise DataError(
                "this cache holds what another program made of its samples",
                try_="a whet.SampleCache of its own for each program",
            )
        if (size := program.kept_bytes) > self.limit:
            raise DataError(
                f"a sample takes {size:,} bytes, the cache has {self.limit:,}",
                try_=f"trainer.cache = whet.SampleCache({100 * size}) for 100 samples",
            )
        self._program = program

    def get(self, samples: Sequence[Hashable]) -> list[Array] | None:
        """Records of all these samples, if it has them all."""
        there = [sample for sample in samples if sample in self._records]
        self.hits += len(there)
        self.misses += len(samples) - len(there)
        for sample in there:
            self._records.move_to_end(sample)
        if len(there) < len(samples):
            return None
        return [self._read(sample) for sample in samples]

    def put(self, sample: Hashable, record: Array) -> None:
        assert self._program is not None
        if sample in self._records:
            return
        place = len(self)
        while self.bytes + self._program.kept_bytes > self.limit:
            _, place = self._records.popitem(last=False)
        if self._file is None:
            self._records[sample] = record.copy()
        else:
            self._file.write(record, place * len(record))
            self._records[sample] = place

    def _read(self, sample: Hashable) -> Array:
        record = self._records[sample]
        if self._file is None:
            found: Array = record
            return found
        assert self._program is not None
        size = self._program.kept_bytes
        return self._file.read(size, record * size)


class _File:
    """Records in a file. It is not mapped into memory: a full disk would end the process."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        try:
            self.file = open(path, "w+b", buffering=0)
        except OSError as error:
            raise self.failed(error) from error

    def write(self, record: Array, at: int) -> None:
        data = memoryview(record.tobytes())
        try:
            while data:
                done = os.pwrite(self.file.fileno(), data, at)
                data, at = data[done:], at + done
        except OSError as error:
            raise self.failed(error) from error

    def read(self, size: int, at: int) -> Array:
        found = np.empty(size, np.uint8)
        view, done = memoryview(found.data), 0
        try:
            while done < size and (n := os.preadv(self.file.fileno(), [view[done:]], at + done)):
                done += n
        except OSError as error:
            raise self.failed(error) from error
        if done < size:
            raise DataError(f"the cache in {self.path} is shorter than it was written")
        return found

    def failed(self, error: OSError) -> DataError:
        return DataError(f"cannot keep samples in {self.path}", why=str(error.strerror))


def ids_of(sample: Any, batch: int) -> list[Hashable]:
    """The id of each sample of a batch."""
    given = sample.tolist() if hasattr(sample, "tolist") else sample
    ids = list(given) if isinstance(given, (list, tuple, range)) else [given]
    ids = [i.item() if hasattr(i, "item") else i for i in ids]
    if len(ids) != batch:
        raise DataError(f"sample= has {len(ids)} ids for a batch of {batch}")
    try:
        distinct = set(ids)
    except TypeError as error:
        raise DataError(
            "sample= has an id that cannot be looked up", why=str(error), try_="numbers or strings"
        ) from None
    if len(distinct) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise DataError(f"sample= has {twice!r} twice", why="an id stands for one sample")
    return ids


def as_records(values: Sequence[Array], batch: int) -> Array:
    """Sample by sample, the bytes of all values."""
    rows = [np.ascontiguousarray(v).reshape(-1).view(np.uint8).reshape(batch, -1) for v in values]
    return np.concatenate(rows, axis=1)


def from_records(records: Sequence[Array], program: Program) -> list[Array]:
    """The values of a batch, from the bytes of its samples."""
    together, at, found = np.stack(records), 0, []
    for kind in program.kept:
        size = kind.bytes // program.batch
        part = np.ascontiguousarray(together[:, at : at + size])
        found.append(part.reshape(-1).view(kind.dtype.numpy).reshape(kind.shape))
        at += size
    return found
