"""The user's data as arrays, split into samples to train on and samples to validate by."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import DataError
from ...runtime import to_numpy

Array = np.ndarray
Batch = tuple[tuple[Array, ...], Array]  # inputs and labels
LEAST = 8  # samples of each part of a split


@dataclass(frozen=True, eq=False)
class Samples:
    """Some rows of arrays that several splits share: inputs as PyTorch has them, and labels."""

    arrays: tuple[Array, ...]  # inputs, then labels
    rows: Array

    @classmethod
    def of(cls, inputs: Iterable[Array], labels: Array) -> Samples:
        return cls((*inputs, labels), np.arange(len(labels)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def inputs(self) -> tuple[Array, ...]:
        return self.at(np.arange(len(self)))[0]

    @property
    def labels(self) -> Array:
        return self.arrays[-1][self.rows]

    def take(self, which: Array) -> Samples:
        return Samples(self.arrays, self.rows[which])

    def at(self, which: Array) -> Batch:
        *inputs, labels = (array[self.rows[which]] for array in self.arrays)
        return tuple(inputs), labels

    def batches(self, order: Array, size: int) -> Iterator[Batch]:
        """Whole batches in this order; the remainder is left out."""
        for start in range(0, len(order) - size + 1, size):
            yield self.at(order[start : start + size])

    def padded(self, size: int) -> Iterator[tuple[Batch, int]]:
        """All samples in order, in batches of which the first `count` samples count."""
        for start in range(0, len(self), size):
            which = np.minimum(np.arange(start, start + size), len(self) - 1)
            yield self.at(which), min(size, len(self) - start)

    @cached_property
    def checksum(self) -> int:
        crc = 0
        for array in (*self.inputs, self.labels):
            crc = zlib.crc32(f"{array.dtype}{array.shape}".encode(), crc)
            crc = zlib.crc32(np.ascontiguousarray(array).tobytes(), crc)
        return crc


def gather(data: Any) -> Samples:
    """From a pair of arrays, or from an iterable of batches (x, y) such as a DataLoader."""
    if isinstance(data, Samples):
        return data
    pair = isinstance(data, (tuple, list)) and len(data) == 2 and hasattr(data[1], "shape")
    try:
        samples = joined([data] if pair else data)
    except (TypeError, ValueError) as error:
        raise DataError(
            "the data are not pairs of inputs and labels",
            why=f"{type(error).__name__}: {error}",
            try_="data=(images, labels), or a DataLoader of such batches",
        ) from error
    if len(sizes := {len(array) for array in samples.arrays}) > 1:
        raise DataError(f"inputs and labels differ in number: {sorted(sizes)}")
    if not all(np.isfinite(array).all() for array in samples.arrays if array.dtype.kind == "f"):
        raise DataError("the data hold numbers that are not finite")
    return samples if pair else in_fixed_order(samples)


def joined(batches: Iterable[Any]) -> Samples:
    inputs: list[tuple[Array, ...]] = []
    labels: list[Array] = []
    for x, y in batches:
        inputs.append(tuple(map(to_numpy, x if isinstance(x, (tuple, list)) else (x,))))
        labels.append(to_numpy(y))
    if not sum(map(len, labels)):
        raise DataError("the data are empty", why="the loader gave no sample")
    return Samples.of(map(np.concatenate, zip(*inputs, strict=True)), np.concatenate(labels))


def in_fixed_order(samples: Samples) -> Samples:
    """Sorted by content, so that results stored for a shuffling loader are found again."""

    def content(i: int) -> bytes:
        found = hashlib.blake2b(digest_size=16)
        for array in samples.arrays:
            found.update(np.ascontiguousarray(array[i]).tobytes())
        return found.digest()

    return samples.take(np.array(sorted(range(len(samples)), key=content)))


def split(
    samples: Samples, held_out: float, batch: int, seed: int, turn: int = 0
) -> tuple[Samples, Samples]:
    """Training and validation samples, stratified by class; no sample validates in two turns."""
    if not 0 < held_out < 1:
        raise DataError(f"held_out={held_out} leaves no samples on one side", try_="0.25")
    order = np.random.default_rng(seed).permutation(len(samples))
    labels = samples.labels[order]
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        order = order[np.argsort(labels, kind="stable")]  # every n-th is a fair share of each class
    taken = np.floor(np.arange(1, len(order) + 1) * held_out)
    held = np.roll(np.diff(taken, prepend=0) > 0, turn)
    train, validation = np.sort(order[~held]), np.sort(order[held])
    check_enough(len(train), len(validation), batch)
    return samples.take(train), samples.take(validation)


def check_enough(train: int, validation: int, batch: int) -> None:
    if min(train, validation) < max(batch, LEAST):
        raise DataError(
            f"{train + validation} samples are too few to search by",
            why=f"{train} to train on and {validation} to validate by, in batches of {batch}",
            try_="more data, or a smaller batch",
        )
