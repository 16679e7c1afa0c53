"""Deep Gradient Compression (Lin, Han, Mao, Wang, Dally, 2018).

A worker sends the largest few of its accumulated gradients and keeps the rest for later rounds.
What keeps training as good as with dense gradients:

- local accumulation: what is not sent is added up until it is large enough to be sent;
- momentum correction: momentum is applied to gradients before they are accumulated;
- momentum factor masking: momentum of what is sent is cleared, so that it is not carried on from
  gradients that are many rounds old;
- local clipping: the norm of a worker's gradient is limited to threshold / sqrt(workers);
- warm-up: the first rounds send more.

The paper chooses the largest per layer; here they are chosen among all coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError, NotFinite
from ...runtime.update import Update, dequantize, quantize

Array = npt.NDArray[Any]
SENT = ("f32", "f16", "i8", "i16")
STAGES = (0.75, 0.9375, 0.984375, 0.996)  # sparsity in each quarter of the warm-up


def largest(values: Array, k: int) -> Array:
    """Rising indices of the k largest magnitudes; of equal ones, the first."""
    if k >= len(values):
        return np.arange(len(values))
    if k <= 0:
        return np.arange(0)
    size = np.abs(values)
    least = np.partition(size, len(size) - k)[len(size) - k]
    chosen = size > least
    ties = np.flatnonzero(size == least)
    chosen[ties[: k - int(chosen.sum())]] = True
    return np.flatnonzero(chosen)


@dataclass(frozen=True)
class Compression:
    """How a worker compresses: `sparsity` is the share of coordinates that is not sent."""

    sparsity: float = 0.999
    momentum: float = 0.9
    warm_up: int = 0  # rounds, with a rising sparsity in each quarter of them
    clip_norm: float | None = None  # of the sum over all workers
    coding: str = "f32"  # of what is sent: f32, f16, i8 or i16
    masking: bool = True  # of the momentum of what is sent

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1 or not 0 <= self.momentum < 1:
            raise DataError(
                f"sparsity={self.sparsity}, momentum={self.momentum}: both are from 0 to below 1",
                try_="sparsity=0.999, momentum=0.9",
            )

        if self.warm_up < 0:
            raise DataError(f"warm_up={self.warm_up} is not a number of rounds", try_="warm_up=4")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise DataError(f"clip_norm={self.clip_norm} limits nothing", try_="clip_norm=1.0")
        if self.coding not in SENT:
            raise DataError(f"there is no coding {self.coding!r}", try_=", ".join(SENT))

    def sparsity_at(self, round: int) -> float:
        """Rounds count from 0."""
        if round >= self.warm_up:
            return self.sparsity
        return min(self.sparsity, STAGES[len(STAGES) * round // self.warm_up])

    def count(self, n: int, round: int) -> int:
        """How many of n coordinates are sent in a round: at least one."""
        return max(1, n - math.floor(self.sparsity_at(round) * n + 1e-6)) if n else 0


class Compressor:
    """One worker's compression: its momentum and what it has not sent yet, both flat float32."""

    def __init__(
        self, n: int, fingerprint: int, settings: Compression | None = None, workers: int = 1
    ) -> None:
        self.fingerprint, self.workers = fingerprint, workers
        self.settings = settings or Compression()
        self.velocity = np.zeros(n, np.float32)  # u in the paper
        self.kept = np.zeros(n, np.float32)  # v in the paper

    def compress(self, gradient: Array, round: int) -> Update:
        """What this worker sends of its gradient, in the coordinates of an update."""
        own, n = self.settings, len(self.kept)
        if gradient.shape != (n,):
            raise DataError(f"the gradient has shape {gradient.shape}, not {(n,)}")
        if not np.isfinite(gradient).all():
            raise NotFinite("the gradient is NaN or infinite", why="nothing was accumulated")
        self.velocity *= np.float32(own.momentum)
        self.velocity += self._clipped(gradient)
        self.kept += self.velocity
        chosen = largest(self.kept, own.count(n, round))
        sent = dequantize(*quantize(self.kept[chosen], own.coding))
        self.kept[chosen] -= sent  # what rounding took away stays, too
        if len(chosen) == n:  # dense: nothing is late, and momentum goes on
            return Update(self.fingerprint, round, n, None, sent, own.coding)
        if own.masking:
            self.velocity[chosen] = 0
        return Update(self.fingerprint, round, n, chosen.astype(np.uint32), sent, own.coding)

    def _clipped(self, gradient: Array) -> Array:
        if self.settings.clip_norm is None:
            return gradient
        limit = self.settings.clip_norm / math.sqrt(self.workers)
        norm = float(np.linalg.norm(gradient.astype(np.float64)))
        return gradient if norm <= limit else gradient * np.float32(limit / norm)
