"""A small network and data that it can learn, for tests of the search."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from whet.api import Source
from whet.frontend.model import Model
from whet.labs.search.analysis import Trials
from whet.labs.search.engine import Engine
from whet.labs.search.lesson import Bench, Lesson
from whet.labs.search.planner import Costs, Planner
from whet.labs.search.samples import Samples, fit_to, split
from whet.labs.search.store import Store
from whet.pipeline import Options

BATCH, SIDE, CLASSES = 4, 12, 5
LAYERS = 4  # before the head


def network() -> nn.Module:
    """Plain, depthwise and pointwise convolutions, with a residual join."""
    torch.manual_seed(3)
    return Small().eval()


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.last = nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = x + self.point(torch.relu(self.deep(x)))
        x = torch.relu(self.last(torch.max_pool2d(x, 2)))
        return self.head(x.mean((2, 3)))


def data(count: int = 160) -> Samples:
    """Five patterns under noise."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, count)
    patterns = random.normal(size=(CLASSES, 1, SIDE, SIDE))
    noise = random.normal(size=(count, 1, SIDE, SIDE))
    return Samples(((2 * patterns[labels] + noise).astype(np.float32),), labels)


def example() -> torch.Tensor:
    return torch.zeros(BATCH, 1, SIDE, SIDE)


def source(dtype: Any = None) -> Source:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    calibrate = None if dtype is None else [torch.from_numpy(data().inputs[0][:32])]
    parts = (model, nn.CrossEntropyLoss(), optimizer, (example(),), None, None, dtype, calibrate)
    return Source(*parts)


@functools.cache
def imported(int8: bool = False) -> Model:
    return source(whet.Int8(rounding="carry8") if int8 else None).imported()


def bench(int8: bool = False, epochs: int = 2) -> Bench:
    model = imported(int8)
    train, judge = split(fit_to(model, data()), 0.25, BATCH, 0)
    return Bench(model, train, judge, Lesson(epochs=epochs, head_epochs=4))


def trials(folder: Path, engine: Engine | None = None, int8: bool = False) -> Trials:
    made = bench(int8)
    return Trials.begin(made, Store(folder, made), engine or Engine())


@functools.cache
def planner() -> Planner:
    return Planner(imported(), Options(grow=False))


@functools.cache
def costs() -> Costs:
    return Costs.measure(planner(), Engine())
