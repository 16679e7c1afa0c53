"""What a defence costs: the accuracy of training with defended updates.

One client, every step's update defended before it is applied, as the server would apply it. Noise
of many clients averages out and that of one does not, so this is the worst case for noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import Program
from ...errors import DataError
from ...runtime import Trainer, set_trained, to_numpy, trained
from .choices import Choice

Report = Callable[[float], None]  # how much of it is done


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
) -> None:
    """Batches drawn without replacement, epoch after epoch, the same for every defence.

    A defence sees each step's update as a gradient, divided by the learning rate, so that a noise
    scale or a limit means here what it means to the attack.
    """
    x, y = (to_numpy(part) for part in data)
    batch, lr = trainer.program.batch, trainer.program.lr
    if len(x) < batch:
        raise DataError(f"{len(x)} samples are fewer than a batch of {batch}")
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for step in range(steps):
        if len(order) < batch:
            order = rng.permutation(len(x)).tolist()
        rows, order = order[:batch], order[batch:]
        if choice is None:
            trainer.step(x[rows], y[rows])
        else:
            before = trained(trainer)
            trainer.step(x[rows], y[rows])
            gradients = {n: (before[n] - a) / lr for n, a in trained(trainer).items()}
            kept = choice.apply(gradients, step + 1000003 * seed).gradients
            set_trained(
                trainer, {n: (before[n] - lr * g).astype(np.float32) for n, g in kept.items()}
            )
        if on_step is not None:
            on_step((step + 1) / steps)


def accuracy_with(
    program: Program,
    data: tuple[Any, Any],
    test: tuple[Any, Any],
    choice: Choice | None,
    steps: int,
    seed: int = 0,
    on_step: Report | None = None,
) -> float:
    """The test accuracy after training from the program's own parameters; NaN if it diverged."""
    from ...errors import NotFinite

    trainer = program.load()
    try:
        train(trainer, data, steps, choice, seed, on_step)
    except NotFinite:
        return float("nan")
    return accuracy(trainer, *test)
