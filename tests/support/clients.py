"""A federation of a few clients with an easy problem, and programs for it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from whet.labs.federated import ClientData, dirichlet

CLASSES, INPUTS, TRAIN = 3, 5, 300


@functools.cache
def samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points around the centres of their classes."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(CLASSES, INPUTS))
    y = random.integers(0, CLASSES, 500)
    x = centres[y] + 0.7 * random.normal(size=(len(y), INPUTS))
    return x.astype(np.float32), y


def judges() -> tuple[np.ndarray, np.ndarray]:
    x, y = samples()
    return x[TRAIN:], y[TRAIN:]


def clients(count: int = 4, alpha: float = 0.5) -> list[ClientData]:
    x, y = samples()
    rows = dirichlet(y[:TRAIN], count, alpha, least=5)
    return [ClientData(x[r], y[r], *judges()) for r in rows]


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Linear(8, CLASSES)).eval()


@functools.cache
def integer_program(rounding: str) -> whet.Program:
    x = torch.from_numpy(samples()[0])
    numbers = whet.Int8(rounding=rounding, head="int8")
    return program(dtype=numbers, calibrate=(x[:100],))


@functools.cache
def program(batch: int = 4, lr: float = 0.1, momentum: float = 0.0, **options: Any) -> whet.Program:
    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=lr, momentum=momentum)
    return whet.compile(made, (torch.zeros(batch, INPUTS),), optimizer=optimizer, **options)
