"""A small network and data that it can learn, for tests of the search."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from whet import TrialSettings, Workbench
from whet.labs.common.data import Samples, split
from whet.labs.common.workers import Workers
from whet.labs.search.candidate import Space
from whet.labs.search.solve import Costs, Plans
from whet.labs.search.trials import Trial, Trials

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


def arrays(count: int = 160) -> tuple[Any, Any]:
    """Five patterns under noise."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, count)
    patterns = random.normal(size=(CLASSES, 1, SIDE, SIDE))
    noise = random.normal(size=(count, 1, SIDE, SIDE))
    return (2 * patterns[labels] + noise).astype(np.float32), labels


def data(count: int = 160) -> Samples:
    x, y = arrays(count)
    return Samples.of([x], y)


def example() -> torch.Tensor:
    return torch.zeros(BATCH, 1, SIDE, SIDE)


@functools.cache
def bench(int8: bool = False) -> Workbench:
    model = network()
    options: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.05)}
    if int8:
        calibrate = [torch.from_numpy(arrays()[0][:32])]
        options |= {"dtype": whet.Int8(rounding="carry8"), "calibrate": calibrate}
    return Workbench.of(model, (example(),), **options)


def space() -> Space:
    return Space(bench().parameters)


def trial(int8: bool = False, epochs: int = 2, turn: int = 0) -> Trial:
    made = bench(int8)
    x, y = arrays()
    samples = Samples.of(made.check_samples([x], y), y)
    train, validation = split(samples, 0.25, BATCH, 0, turn)
    return Trial(made, train, validation, TrialSettings(epochs=epochs, head_epochs=4))


def trials(
    folder: Path, workers: Workers | None = None, int8: bool = False, splits: int = 1
) -> Trials:
    every = [trial(int8, turn=turn) for turn in range(splits)]
    return Trials.of(every, folder, workers or Workers())


@functools.cache
def plans() -> Plans:
    return Plans(bench())


@functools.cache
def costs() -> Costs:
    return Costs.of(plans(), Workers())
