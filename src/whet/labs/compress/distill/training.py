"""A ready loop: a student learns from data and a teacher, in PyTorch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import DataError, NotFinite
from ...common.progress import Progress, silent
from .distiller import Distiller
from .taps import as_inputs
from .terms import Logits, Term

CACHED = 512 << 20  # bytes of the teacher's tensors that are kept from epoch to epoch
Batch = tuple[tuple[Tensor, ...], Any]  # inputs and the target of the loss
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


def distill(
    student: nn.Module,
    teacher: nn.Module,
    data: Any,
    *,
    losses: Sequence[Term] | Term | None = None,
    hard: float = 1.0,
    epochs: int = 1,
    lr: float = 1e-3,
    batch: int = 64,
    optimizer: MakeOptimizer | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[float]:
    """Train the student in place; gives the mean loss of each epoch.

    `data` is a pair of tensors, inputs and labels, or an iterable of such batches. `losses` are
    `Logits()` by default. The optimizer is Adam, or what `optimizer` makes of the parameters; its
    learning rates fall along a cosine from epoch to epoch. Of a pair, what the teacher gives is
    computed once where there is room for it; an incomplete last batch is left out.
    """
    if epochs < 1:
        raise DataError(f"epochs={epochs}", try_="epochs=1")
    terms = Logits() if losses is None else losses
    source: Source = Pair(data, batch, seed) if is_pair(data) else Loader(data)
    distiller = Distiller(student, teacher, terms, source.example(), hard=hard, seed=seed)
    source.prepare(distiller)
    parameters = [p for p in distiller.parameters() if p.requires_grad]
    made = torch.optim.Adam(parameters, lr) if optimizer is None else optimizer(parameters)
    rates = [group["lr"] for group in made.param_groups]
    means = []
    with training(student), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for dropout
        for epoch in range(epochs):
            share = (1 + math.cos(math.pi * epoch / epochs)) / 2
            for group, rate in zip(made.param_groups, rates, strict=True):
                group["lr"] = rate * share
            means.append(one_epoch(distiller, source, made, epoch))
            progress("distilling", epoch + 1, epochs)
    return means


def with_teacher(teacher: nn.Module, data: Any, **options: Any) -> Callable[[nn.Module], None]:
    """`distill` as a function of the student alone, for whatever retrains a model."""

    def train(model: nn.Module) -> None:
        distill(model, teacher, data, **options)

    return train


def one_epoch(
    distiller: Distiller, source: Source, optimizer: torch.optim.Optimizer, epoch: int
) -> float:
    losses = []
    for x, target in source.batches(distiller):
        optimizer.zero_grad()
        loss = distiller.loss(x, target)
        if not torch.isfinite(loss):
            raise NotFinite(
                f"the loss is {loss.item()} in epoch {epoch + 1}",
                why="the last step was not taken",
                try_="a smaller learning rate, or smaller weights of the terms",
            )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses:
        raise DataError(
            f"the data gave no batch in epoch {epoch + 1}",
            why="an iterator can be read once, and an incomplete batch is left out",
            try_="a DataLoader, a list of batches, or a smaller batch",
        )
    return math.fsum(losses) / len(losses)


@contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """The model in training mode; its modules get their modes back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class Source(ABC):
    """Where batches of inputs and targets come from."""

    @abstractmethod
    def example(self) -> tuple[Tensor, ...]:
        """The inputs of a batch."""

    @abstractmethod
    def prepare(self, distiller: Distiller) -> None:
        """Compute beforehand what every epoch needs."""

    @abstractmethod
    def batches(self, distiller: Distiller) -> Iterator[Batch]:
        """One epoch: inputs, and the target of the loss."""


class Loader(Source):
    """An iterable of batches; the teacher sees each again in every epoch, augmented or not."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def example(self) -> tuple[Tensor, ...]:
        for x, _ in self.data:
            return as_inputs(x)
        raise DataError("there is not one batch of data")

    def prepare(self, distiller: Distiller) -> None:
        """Nothing: a batch may be another one in every epoch."""

    def batches(self, distiller: Distiller) -> Iterator[Batch]:
        for x, y in self.data:
            inputs = as_inputs(x)
            if len(inputs[0]) >= distiller.least:
                yield inputs, distiller.labels(inputs, y)


class Pair(Source):
    """All inputs and labels, shuffled in every epoch."""

    def __init__(self, data: Any, batch: int, seed: int) -> None:
        self.inputs, self.labels = as_inputs(data[0]), torch.as_tensor(data[1])
        sizes = {len(array) for array in (*self.inputs, self.labels)}
        if len(sizes) > 1:
            raise DataError(f"inputs and labels differ in number: {sorted(sizes)}")
        (self.count,) = sizes
        if not 1 <= batch <= self.count:
            raise DataError(f"batches of {batch} of {self.count} samples", try_="a smaller batch")
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)
        self.kept: tuple[Tensor, ...] | None = None

    def example(self) -> tuple[Tensor, ...]:
        return tuple(x[: self.batch] for x in self.inputs)

    def prepare(self, distiller: Distiller) -> None:
        first = distiller.targets(self.example())
        if sum(t.nbytes for t in first) * self.count > CACHED * self.batch:
            return
        parts = [
            distiller.targets(tuple(x[i : i + self.batch] for x in self.inputs))
            for i in range(0, self.count, self.batch)
        ]
        self.kept = tuple(map(torch.cat, zip(*parts, strict=True)))

    def batches(self, distiller: Distiller) -> Iterator[Batch]:
        order = torch.randperm(self.count, generator=self.generator)
        for start in range(0, self.count - self.batch + 1, self.batch):
            rows = order[start : start + self.batch]
            x = tuple(array[rows] for array in self.inputs)
            theirs = None if self.kept is None else tuple(t[rows] for t in self.kept)
            yield x, distiller.labels(x, self.labels[rows], theirs)


def is_pair(data: Any) -> bool:
    return isinstance(data, (tuple, list)) and len(data) == 2 and hasattr(data[1], "shape")
