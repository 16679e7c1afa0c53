"""The user's data as arrays: what candidates are trained on, and what they are judged by."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from ..frontend.torch import Model
from ..ir import Array, Role
from ..runtime.trainer import to_numpy

LEAST = 8  # samples of each part


@dataclass(frozen=True)
class Samples:
    """Inputs, each [n, ...] as PyTorch has them, and labels [n, ...]."""

    inputs: tuple[Array, ...]
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: Array) -> Samples:
        return Samples(tuple(x[which] for x in self.inputs), self.labels[which])

    def batches(self, order: Array, size: int) -> Iterator[tuple[tuple[Array, ...], Array]]:
        """Whole batches in this order; what is left over is left out."""
        for start in range(0, len(order) - size + 1, size):
            which = order[start : start + size]
            yield tuple(x[which] for x in self.inputs), self.labels[which]

    def padded(self, size: int) -> Iterator[tuple[tuple[Array, ...], Array, int]]:
        """Every sample, in order; the last batch is filled up, and says how many of it count."""
        for start in range(0, len(self), size):
            which = np.arange(start, start + size)
            count = min(size, len(self) - start)
            which = np.minimum(which, len(self) - 1)
            yield tuple(x[which] for x in self.inputs), self.labels[which], count

    def checksum(self) -> int:
        crc = 0
        for array in (*self.inputs, self.labels):
            crc = zlib.crc32(f"{array.dtype}{array.shape}".encode(), crc)
            crc = zlib.crc32(np.ascontiguousarray(array).tobytes(), crc)
        return crc


def gather(data: Any, limit: int | None = None) -> Samples:
    """From a pair of arrays, or from an iterable of batches (x, y) such as a DataLoader."""
    if isinstance(data, Samples):
        return data
    pair = isinstance(data, (tuple, list)) and len(data) == 2 and hasattr(data[1], "shape")
    batches: Iterable[Any] = [data] if pair else data
    inputs: list[tuple[Array, ...]] = []
    labels: list[Array] = []
    count = 0
    try:
        for x, y in batches:
            inputs.append(tuple(map(to_numpy, x if isinstance(x, (tuple, list)) else (x,))))
            labels.append(to_numpy(y))
            count += len(labels[-1])
            if limit is not None and count >= limit:
                break
    except (TypeError, ValueError) as error:
        raise DataError(
            "the data are no pairs of inputs and labels",
            why=f"{type(error).__name__}: {error}",
            try_="data=(images, labels), or a DataLoader of such batches",
        ) from error
    if not labels:
        raise DataError("there are no data", why="the loader gave no batch")
    whole = Samples(tuple(map(np.concatenate, zip(*inputs, strict=True))), np.concatenate(labels))
    sizes = {len(array) for array in (*whole.inputs, whole.labels)}
    if len(sizes) > 1:
        raise DataError(f"inputs and labels differ in number: {sorted(sizes)}")
    for array in (*whole.inputs, whole.labels):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError("the data hold numbers that are not finite")
    return whole if limit is None else whole.take(np.arange(min(limit, len(whole))))


def split(samples: Samples, held_out: float, batch: int, seed: int) -> tuple[Samples, Samples]:
    """Those to train on and those to judge by, the latter as many of each class as may be."""
    if not 0 < held_out < 1:
        raise DataError(f"held_out={held_out} leaves nothing on one side", try_="0.25")
    order = np.random.default_rng(seed).permutation(len(samples))
    labels = samples.labels[order]
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        order = order[np.argsort(labels, kind="stable")]  # every n-th is a fair share of each
    taken = np.floor(np.arange(1, len(order) + 1) * held_out)
    held = np.diff(taken, prepend=0) > 0
    train, judge = np.sort(order[~held]), np.sort(order[held])
    if len(train) < max(batch, LEAST) or len(judge) < LEAST:
        raise DataError(
            f"{len(samples)} samples are too few to choose by",
            why=f"{len(train)} to train on in batches of {batch}, {len(judge)} to judge by",
            try_="more data, or a smaller batch",
        )
    return samples.take(train), samples.take(judge)


def fit_to(model: Model, samples: Samples) -> Samples:
    """As the program takes them: checked, and as int8 where the input is."""
    leaves = model.training.graph.leaves_of(Role.INPUT)
    if len(leaves) != len(samples.inputs):
        raise DataError(
            f"the model takes {len(leaves)} inputs, the data have {len(samples.inputs)}"
        )
    inputs = []
    for leaf, array in zip(leaves, samples.inputs, strict=True):
        order = model.training.orders[leaf.name]
        shape = [0] * leaf.type.rank
        for axis, n in zip(order, leaf.shape, strict=True):
            shape[axis] = n
        if tuple(array.shape[1:]) != tuple(shape[1:]):
            raise DataError(
                f"{leaf.name} has shape {tuple(array.shape[1:])} in the data, "
                f"{tuple(shape[1:])} in the model"
            )
        quant = model.quants.get(leaf.name)
        given = array.dtype.kind == "f" and quant is not None
        parts = itertools.pairwise([*range(0, len(array), 256), len(array)])
        inputs.append(
            np.concatenate([quant.quantize(array[a:b]) for a, b in parts])
            if given and quant is not None
            else array
        )
    return Samples(tuple(inputs), samples.labels)
