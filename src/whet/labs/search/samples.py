"""The user's data as arrays: what candidates are trained on, and what they are judged by."""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError
from ...frontend.model import Model
from ...ir import Array, Graph, Role, Value
from ...runtime.trainer import to_numpy

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
    try:
        whole = joined([data] if pair else data, limit)
    except (TypeError, ValueError) as error:
        raise DataError(
            "the data are no pairs of inputs and labels",
            why=f"{type(error).__name__}: {error}",
            try_="data=(images, labels), or a DataLoader of such batches",
        ) from error
    check(whole)
    if limit is None or limit >= len(whole):
        return whole if pair else in_one_order(whole)
    some = np.linspace(0, len(whole) - 1, limit).astype(int)  # of every class, if sorted
    return whole.take(some)


def joined(batches: Iterable[Any], limit: int | None) -> Samples:
    """All of them, or as many as it takes to come to a limit."""
    inputs: list[tuple[Array, ...]] = []
    labels: list[Array] = []
    count = 0
    for x, y in batches:
        inputs.append(tuple(map(to_numpy, x if isinstance(x, (tuple, list)) else (x,))))
        labels.append(to_numpy(y))
        count += len(labels[-1])
        if limit is not None and count >= limit:
            break
    if not count:
        raise DataError("there are no data", why="the loader gave no sample")
    return Samples(
        tuple(map(np.concatenate, zip(*inputs, strict=True))),
        np.concatenate(labels),
    )


def check(samples: Samples) -> None:
    every = (*samples.inputs, samples.labels)
    sizes = {len(array) for array in every}
    if len(sizes) > 1:
        raise DataError(f"inputs and labels differ in number: {sorted(sizes)}")
    for array in every:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError("the data hold numbers that are not finite")


def in_one_order(samples: Samples) -> Samples:
    """The same whatever order a loader that shuffles gave them in, so that work can go on."""

    def content(i: int) -> bytes:
        found = hashlib.blake2b(digest_size=16)
        for array in (*samples.inputs, samples.labels):
            found.update(np.ascontiguousarray(array[i]).tobytes())
        return found.digest()

    return samples.take(np.array(sorted(range(len(samples)), key=content)))


def split(
    samples: Samples, held_out: float, batch: int, seed: int, turn: int = 0
) -> tuple[Samples, Samples]:
    """Those to train on and those to judge by, the latter as many of each class as may be.

    Every turn has others to judge by, until all have had theirs.
    """
    if not 0 < held_out < 1:
        raise DataError(f"held_out={held_out} leaves nothing on one side", try_="0.25")
    order = np.random.default_rng(seed).permutation(len(samples))
    labels = samples.labels[order]
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        order = order[np.argsort(labels, kind="stable")]  # every n-th is a fair share of each
    taken = np.floor(np.arange(1, len(order) + 1) * held_out)
    held = np.roll(np.diff(taken, prepend=0) > 0, turn)
    train, judge = np.sort(order[~held]), np.sort(order[held])
    check_enough(len(train), len(judge), batch)
    return samples.take(train), samples.take(judge)


def check_enough(train: int, judge: int, batch: int) -> None:
    if min(train, judge) < max(batch, LEAST):
        raise DataError(
            f"{train + judge} samples are too few to choose by",
            why=f"{train} to train on and {judge} to judge by, in batches of {batch}",
            try_="more data, or a smaller batch",
        )


@dataclass(frozen=True)
class Classes:
    """What labels are: numbers of so many classes; one number may mean that none counts."""

    count: int
    ignored: int


def classes_of(graph: Graph) -> Classes | None:
    """What the loss checks labels for; None if they are no numbers of classes."""
    labels = set(graph.leaves_of(Role.LABEL))
    for node in graph.nodes:
        for place, (count, ignored) in node.op.bounds(node).items():
            if node.ins[place] in labels:
                return Classes(count, ignored)
        if node.op.view and node.ins[0] in labels:
            labels.update(node.outs)
    return None


def check_labels(model: Model, labels: Array) -> None:
    """Before anything is built: the last one wrong would be found late."""
    graph = model.training.graph
    (leaf,) = graph.leaves_of(Role.LABEL)
    known, shape = classes_of(graph), shape_of(model, leaf)
    if labels.shape[1:] != shape[1:]:
        raise DataError(
            f"labels have shape {labels.shape[1:]} for each sample, the loss takes {shape[1:]}"
        )
    if known is None:
        return
    if labels.dtype.kind not in "iu":
        raise DataError(f"labels are {labels.dtype}, the loss takes numbers of classes")
    wrong = (labels != known.ignored) & ((labels < 0) | (labels >= known.count))
    if wrong.any():
        raise DataError(
            "a label is out of range",
            why=f"the model has {known.count} classes, the label of sample "
            f"{int(np.argwhere(wrong)[0][0])} is {int(labels[wrong][0])}",
        )


def shape_of(model: Model, leaf: Value) -> tuple[int, ...]:
    """As PyTorch has it."""
    order = model.training.orders.get(leaf.name, tuple(range(leaf.type.rank)))
    return tuple(leaf.shape[order.index(axis)] for axis in range(leaf.type.rank))


def fit_to(model: Model, samples: Samples) -> Samples:
    """As the program takes them: checked, and as int8 where the input is."""
    leaves = model.training.graph.leaves_of(Role.INPUT)
    if len(leaves) != len(samples.inputs):
        raise DataError(
            f"the model takes {len(leaves)} inputs, the data have {len(samples.inputs)}"
        )
    check_labels(model, samples.labels)
    inputs = []
    for leaf, array in zip(leaves, samples.inputs, strict=True):
        shape = shape_of(model, leaf)
        if array.shape[1:] != shape[1:]:
            raise DataError(
                f"{leaf.name} has shape {array.shape[1:]} in the data, {shape[1:]} in the model"
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
