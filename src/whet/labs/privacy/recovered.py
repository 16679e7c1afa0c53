"""What an attack gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, float, Array], None]  # start, iteration, matching loss, images
EVERY = 10  # iterations between two snapshots, as in the figures of the literature


@dataclass(frozen=True)
class Snapshot:
    iteration: int
    loss: float  # how far the gradients of these images are from those observed
    images: Array


@dataclass(frozen=True)
class Recovered:
    """The start that an attacker picks: of those that did not diverge, the best match.

    The pick never looks at the original. A start diverged if its matching loss became infinite,
    NaN, or ended above where it began; if all of them did, the pick is the least bad iterate, and
    that says nothing about the defence.
    """

    method: str
    images: Array  # [batch, ...] in the units of the model's input
    labels: Array  # int64 [batch]
    losses: tuple[float, ...] = ()  # the least matching loss of each start
    diverged: int = 0  # how many of the starts
    chosen: int = 0  # the start that was picked
    history: tuple[Snapshot, ...] = ()  # of that start, one every 10 iterations
    seconds: float = 0.0  # of processor time, all starts together
    evaluations: int = 0  # of the matching loss and its gradient, all starts together

    @property
    def failed(self) -> bool:
        """Whether every start diverged, so that nothing was learned about the defence."""
        return bool(self.losses) and self.diverged == len(self.losses)
