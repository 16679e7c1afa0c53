"""What a defence costs: training with defended updates, its accuracy, and who it remembers.

One client, every step's update defended before it is applied, as the server would apply it. Noise
of many clients averages out and that of one does not, so this is the worst case for noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import Program
from ...errors import DataError, NotFinite
from ...runtime import Trainer, set_trained, to_numpy, trained
from .choices import Choice
from .membership import loss_scores
from .roc import Array, Roc

Report = Callable[[float], None]  # how much of it is done
SCORED = 2000  # members and others at most that membership is inferred of


@dataclass(frozen=True, eq=False)
class Trained:
    """After training behind a defence."""

    accuracy: float  # on the test samples; NaN if training diverged
    members: Roc | None  # by loss: samples that were trained on, against the test samples

    def __str__(self) -> str:
        return "diverged" if math.isnan(self.accuracy) else f"{self.accuracy:.1%}"


def accuracy(trainer: Trainer, x: Any, y: Any) -> float:
    """The share of samples whose highest score is that of their label."""
    return float((trainer.predict(to_numpy(x)).argmax(1) == to_numpy(y)).mean())


def train(
    trainer: Trainer,
    data: tuple[Any, Any],
    steps: int,
    choice: Choice | None = None,
    seed: int = 0,
    on_step: Report | None = None,
) -> Array:
    """Train, and give the rows that were used.

    Batches are drawn without replacement, epoch after epoch, the same for every defence. A defence
    sees each step's update as a gradient, divided by the learning rate, so that a noise scale or a
    limit means here what it means to the attack.
    """
    x, y = (to_numpy(part) for part in data)
    batch, lr = trainer.program.batch, trainer.program.lr
    if len(x) < batch:
        raise DataError(f"{len(x)} samples are fewer than a batch of {batch}")
    rng = np.random.default_rng(seed)
    order: list[int] = []
    used: set[int] = set()
    for step in range(steps):
        if len(order) < batch:
            order = rng.permutation(len(x)).tolist()
        rows, order = order[:batch], order[batch:]
        used.update(rows)
        before = {} if choice is None else trained(trainer)
        trainer.step(x[rows], y[rows])
        if choice is not None:
            gradients = {n: (before[n] - a) / lr for n, a in trained(trainer).items()}
            sent = choice.apply(gradients, step + 1000003 * seed).gradients
            set_trained(
                trainer, {n: (before[n] - lr * g).astype(np.float32) for n, g in sent.items()}
            )
        if on_step is not None:
            on_step((step + 1) / steps)
    return np.array(sorted(used), np.int64)


def trained_with(
    program: Program,
    data: tuple[Any, Any],
    test: tuple[Any, Any],
    choice: Choice | None,
    steps: int,
    seed: int = 0,
    on_step: Report | None = None,
) -> Trained:
    """Train from the program's own parameters, with every update defended."""
    trainer = program.load()
    try:
        used = train(trainer, data, steps, choice, seed, on_step)[:SCORED]
        scores = accuracy(trainer, *test)
    except NotFinite:
        return Trained(math.nan, None)
    inside = loss_scores(trainer, *(to_numpy(part)[used] for part in data))
    outside = loss_scores(trainer, *(to_numpy(part)[:SCORED] for part in test))
    finite = np.isfinite(inside).all() and np.isfinite(outside).all()
    return Trained(scores, Roc.of(inside, outside) if finite else None)
