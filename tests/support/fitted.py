"""Small runs of `Trainer.fit`: programs, data with some order to them, and callbacks that fail."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from whet.callbacks import Callback, Control, State

BATCH = 4


@functools.cache
def program(optimizer: str = "adam", dropout: float = 0.3, **options: Any) -> whet.Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))
    options = {"accumulate": True, **options}
    return whet.compile(model.train(), (torch.randn(BATCH, 5),), optimizer=optimizer, **options)


def samples(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 1)


class Drawn(torch.utils.data.Dataset[Any]):
    """Samples with noise from every global generator, as augmentations have it; counts reads."""

    def __init__(self, count: int) -> None:
        self.x, self.y = samples(count)
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        self.read.append(i)
        noise = torch.randn(5).numpy() + np.random.normal(size=5).astype(np.float32)
        return self.x[i] + 0.1 * noise, int(self.y[i])


class Stepping:
    """An iterable of batches that begins anew, with noise from a global generator."""

    def __init__(self, count: int) -> None:
        self.x, self.y = samples(count)

    def __iter__(self) -> Iterator[Any]:
        for at in range(0, len(self.x), BATCH):
            x = self.x[at : at + BATCH]
            yield x + np.random.normal(size=x.shape).astype(np.float32), self.y[at : at + BATCH]


class Killed(BaseException):
    """What no handler of errors expects."""


class Bomb(Callback):
    """Ends the process, as far as Python sees it, at the n-th event of all."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _count(self, state: State) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    on_train_begin = on_epoch_begin = on_step_begin = on_step_end = _count
    on_log = on_evaluate = on_save = on_epoch_end = on_train_end = _count


class Asking(Callback):
    """Asks for an evaluation and a save in the middle of epochs."""

    def on_step_end(self, state: State) -> Control:
        return Control(evaluate=state.step % 3 == 0, save=state.step % 3 == 1)
