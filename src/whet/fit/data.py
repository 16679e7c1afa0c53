"""Data to train on or to judge by, batch by batch: arrays, PyTorch's loaders, other iterables."""

from __future__ import annotations

import operator
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from ..ir import Array
from ..runtime.arrays import to_numpy
from . import randomness

FORMS = "two arrays (x, y), an iterable of batches (x, y), or a torch DataLoader"


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples as PyTorch has them; several inputs or labels are tuples."""

    inputs: tuple[Array, ...]
    labels: tuple[Array, ...]

    @classmethod
    def of(cls, pair: Any) -> Batch:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise DataError(
                "a batch of the data is not a pair (x, y)", why=f"it is {kind_of(pair)}", try_=FORMS
            )
        return cls(arrays_of(pair[0]), arrays_of(pair[1]))

    def __len__(self) -> int:
        return len(self.inputs[0]) if self.inputs[0].ndim else 1

    @property
    def x(self) -> Any:
        return self.inputs if len(self.inputs) > 1 else self.inputs[0]

    @property
    def y(self) -> Any:
        return self.labels if len(self.labels) > 1 else self.labels[0]

    def take(self, rows: Array) -> Batch:
        inputs, labels = (tuple(a[rows] for a in part) for part in (self.inputs, self.labels))
        return Batch(inputs, labels)

    def followed_by(self, other: Batch) -> Batch:
        mine, others = (self.inputs, self.labels), (other.inputs, other.labels)
        return Batch(*(
            tuple(np.concatenate(pair) for pair in zip(*parts, strict=True))
            for parts in zip(mine, others, strict=True)
        ))  # fmt: skip

    @property
    def checksum(self) -> int:
        crc = 0
        for array in (*self.inputs, *self.labels):
            crc = zlib.crc32(np.ascontiguousarray(array).tobytes(), crc)
        return crc


def kind_of(thing: Any) -> str:
    count = f" of {len(thing)}" if isinstance(thing, (tuple, list)) else ""
    return f"a {type(thing).__name__}{count}"


def is_arrays(part: Any) -> bool:
    """An array, or some of them for several inputs."""
    if isinstance(part, (tuple, list)):
        return bool(part) and all(hasattr(one, "shape") for one in part)
    return hasattr(part, "shape")


def arrays_of(part: Any) -> tuple[Array, ...]:
    several = isinstance(part, (tuple, list)) and is_arrays(part)
    return tuple(map(to_numpy, part if several else (part,)))


class Source(ABC):
    """Where batches come from. It knows how to go on in the middle of an epoch."""

    kind: str
    samples: int | None = None  # how many there are, if that is known
    steps: int | None = None  # batches of an epoch

    @abstractmethod
    def begin(self, epoch: int, position: int = 0, saved: Any = None) -> Iterator[Batch]:
        """Batches of an epoch from this one on; `saved` is what `state` gave there."""

    @abstractmethod
    def state(self, position: int) -> Any:
        """What is needed to go on at this batch of the epoch: numbers, texts, bytes."""

    @abstractmethod
    def opening(self) -> Batch:
        """The first samples of this epoch, at least one."""


def check(found: int, saved: Any) -> None:
    """Compare checksums of the order, or of a batch."""
    if found != saved:
        raise DataError(
            "the data come in another order than before",
            why="a run goes on exactly only if the samples come in the order that it began with",
            try_="the same data, whose order depends on the epoch and on global seeds alone",
        )


class Arrays(Source):
    """Whole arrays, in an order that follows from the seed and the epoch alone."""

    kind = "arrays"

    def __init__(self, x: Any, y: Any, size: int, shuffle: bool = False, seed: int = 0) -> None:
        self.whole = Batch(arrays_of(x), arrays_of(y))
        counts = {len(a) if a.ndim else 0 for a in (*self.whole.inputs, *self.whole.labels)}
        if len(counts) > 1:
            raise DataError(f"inputs and labels differ in number: {sorted(counts)}")
        self.samples, self.size, self.shuffle, self.seed = len(self.whole), size, shuffle, seed
        if counts == {0}:
            raise DataError("the data are empty")
        self.steps = -(-self.samples // size)

    def begin(self, epoch: int, position: int = 0, saved: Any = None) -> Iterator[Batch]:
        assert self.samples is not None
        self.order = np.arange(self.samples)
        if self.shuffle:
            self.order = np.random.default_rng([self.seed, epoch]).permutation(self.samples)
        if saved is not None and position:
            check(zlib.crc32(self.order.astype("<i8").tobytes()), saved)
        starts = range(position * self.size, self.samples, self.size)
        return (self.whole.take(self.order[at : at + self.size]) for at in starts)

    def state(self, position: int) -> int | None:
        return None if not position else zlib.crc32(self.order.astype("<i8").tobytes())

    def opening(self) -> Batch:
        return self.whole.take(self.order[: self.size])


class Stream(Source):
    """Any iterable of batches: it is iterated once an epoch, and again to go on in one."""

    kind = "iterable"
    generators: tuple[Any, ...] = ()

    def __init__(self, data: Any) -> None:
        self.data = data
        self.last: Batch | None = None
        self.first: Batch | None = None
        self.once, self.used = isinstance(data, Iterator), False
        self.steps = operator.length_hint(data, 0) or None

    def begin(self, epoch: int, position: int = 0, saved: Any = None) -> Iterator[Batch]:
        if saved is not None:
            self.set_back(saved, "before" if position else "now")
        self.before = randomness.now(self.generators)
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)
        iterator = self.iterator(epoch, position)
        if saved is not None and position:
            check(self.checksum(), saved.get("check"))
            self.set_back(saved, "now")
        return map(self.seen, iterator)

    def iterator(self, epoch: int, position: int) -> Iterator[Any]:
        if self.once and self.used:
            raise DataError(
                "the data can be iterated once only, and there are several epochs",
                why=f"it is {kind_of(self.data)}",
                try_="a list of batches, or an object whose __iter__ begins anew",
            )
        self.used = True
        self.first = self.last = None
        iterator = iter(self.data)
        for _, pair in zip(range(position), iterator, strict=False):
            self.seen(pair)
        return iterator

    def seen(self, pair: Any) -> Batch:
        batch = Batch.of(pair)
        self.first, self.last = self.first or batch, batch
        return batch

    def checksum(self) -> int:
        return 0 if self.last is None else self.last.checksum

    def set_back(self, saved: Any, when: str) -> None:
        known = saved.get(when) if isinstance(saved, dict) else None
        randomness.restore(known, self.generators)

    def state(self, position: int) -> dict[str, Any]:
        known = {"now": randomness.now(self.generators)}
        return {**known, "before": self.before, "check": self.checksum()} if position else known

    def opening(self) -> Batch:
        assert self.first is not None
        return self.first


class Loader(Stream):
    """A torch DataLoader of a dataset with indices: what was trained on is never loaded again."""

    kind = "loader"

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.samples = len(data.dataset)
        own = (data.generator, getattr(data.sampler, "generator", None))
        self.generators = tuple({id(g): g for g in own if g is not None}.values())

    def iterator(self, epoch: int, position: int) -> Iterator[Any]:
        for sampler in (self.data.sampler, self.data.batch_sampler):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        self.order = [list(map(int, rows)) for rows in self.data.batch_sampler]
        self.steps = len(self.order)
        return iter(self.of(self.order[position:]))

    def of(self, order: list[list[int]]) -> Any:
        """A loader of these batches, and like the user's in all else."""
        data, torch = self.data, sys.modules["torch"]
        words = "num_workers collate_fn pin_memory timeout worker_init_fn generator".split()
        if data.num_workers:
            words += ["prefetch_factor", "multiprocessing_context"]
        options = {word: getattr(data, word) for word in words}
        return torch.utils.data.DataLoader(data.dataset, batch_sampler=order, **options)

    def seen(self, pair: Any) -> Batch:
        return Batch.of(pair)

    def checksum(self) -> int:
        return zlib.crc32(repr(self.order).encode())

    def opening(self) -> Batch:
        dataset = self.data.dataset
        return Batch.of(self.data.collate_fn([dataset[i] for i in self.order[0]]))


def has_indices(data: Any) -> bool:
    """Whether it is a torch DataLoader whose dataset is read by index."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(data, torch.utils.data.DataLoader):
        return False
    plain = type(data).__iter__ is torch.utils.data.DataLoader.__iter__
    by_index = not isinstance(data.dataset, torch.utils.data.IterableDataset)
    return plain and by_index and data.batch_sampler is not None


def source_of(data: Any, size: int, shuffle: bool = False, seed: int = 0) -> Source:
    listed = isinstance(data, list) and all(hasattr(part, "shape") for part in data)
    if isinstance(data, tuple) or listed:
        if len(data) != 2 or not all(map(is_arrays, data)):
            raise DataError("the data are not two arrays", why=f"they are {kind_of(data)}",
                            try_=FORMS)  # fmt: skip
        return Arrays(data[0], data[1], size, shuffle, seed)
    if has_indices(data):
        return Loader(data)
    if hasattr(data, "shape") or not hasattr(data, "__iter__"):
        raise DataError("the data have no labels", why=f"they are {kind_of(data)}", try_=FORMS)
    return Stream(data)
