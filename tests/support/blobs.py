"""Four classes that a small network learns in a second, for tests of the compress lab."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

Array = np.ndarray[Any, Any]


def samples(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Four classes around random points of eight axes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, count)
    centres = np.random.default_rng(7).normal(size=(4, 8))
    return (centres[y] + 0.5 * rng.normal(size=(count, 8))).astype(np.float32), y


DATA, TEST = samples(320), samples(200, seed=1)


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4)).eval()


def judge(model: nn.Module) -> float:
    with torch.no_grad():
        found = model(torch.from_numpy(TEST[0])).argmax(1).numpy()
    return 100 * float((found == TEST[1]).mean())


OPTIONS: dict[str, Any] = dict(
    test=TEST, prune=0.6, kmeans=3, first=6, rounds=2, epochs=2, lr=5e-3, batch=32
)


def same(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return list(ours) == list(theirs) and all(torch.equal(ours[n], theirs[n]) for n in ours)


MODEL = """
from torch import nn
def make():
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))
"""
