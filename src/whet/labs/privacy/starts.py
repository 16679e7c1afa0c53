"""Restarts: what every iterative attack shares."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .gradients import Observation, one_thread
from .recovered import EVERY, Array, Progress, Recovered, Snapshot

PATIENCE = 5  # blocks of iterations above the loss of the start before it counts as diverged


@dataclass
class State:
    """Where a start is after a block of iterations."""

    loss: float
    images: Tensor  # in the units of the model's input
    labels: Tensor
    evaluations: int


@dataclass
class Start:
    """One start, with the iterate of the least loss so far."""

    first: float = math.nan
    loss: float = math.inf
    images: Array | None = None
    labels: Array | None = None
    evaluations: int = 0
    above: int = 0  # blocks in a row that ended above the first loss
    diverged: bool = False
    history: tuple[Snapshot, ...] = ()

    def add(self, iteration: int, state: State) -> None:
        self.evaluations = state.evaluations
        finite = math.isfinite(state.loss) and bool(torch.isfinite(state.images).all())
        if iteration == 0:
            self.first = state.loss
        self.above = self.above + 1 if not finite or state.loss > self.first else 0
        self.diverged = not finite or self.above > 0
        if not finite:
            return
        images = state.images.detach().float().numpy().copy()
        self.history += (Snapshot(iteration, state.loss, images),)
        if state.loss < self.loss or self.images is None:
            self.loss, self.images = state.loss, images
            self.labels = state.labels.detach().numpy().astype(np.int64)

    @property
    def hopeless(self) -> bool:
        return self.diverged and (self.above >= PATIENCE or not self.history)


Run = Callable[[torch.Generator], Iterable[State]]


def best_of(
    method: str,
    observation: Observation,
    run: Run,
    *,
    restarts: int,
    seed: int,
    on_progress: Progress | None = None,
    every: int = EVERY,
) -> Recovered:
    """Run all starts; pick the least matching loss among those that did not diverge.

    `run` gives the state at its start and then after every block of `every` iterations.
    """
    begin = time.process_time()
    starts = []
    with one_thread():
        for number in range(restarts):
            start = Start()
            random = torch.Generator().manual_seed(seed * 1000 + number)
            for block, state in enumerate(run(random)):
                start.add(block * every, state)
                if on_progress is not None and start.history:
                    on_progress(number, block * every, state.loss, start.history[-1].images)
                if start.hopeless or not math.isfinite(state.loss):
                    break
            starts.append(start)
    standing = [s for s in starts if not s.diverged]
    best = min(standing or starts, key=lambda s: s.loss)
    blank = np.full(observation.shape, np.mean(observation.span), np.float32)
    return Recovered(
        method=method,
        images=blank if best.images is None else best.images,
        labels=np.zeros(0, np.int64) if best.labels is None else best.labels,
        losses=tuple(s.loss for s in starts),
        diverged=len(starts) - len(standing),
        chosen=starts.index(best),
        history=best.history,
        seconds=time.process_time() - begin,
        evaluations=sum(s.evaluations for s in starts),
    )
