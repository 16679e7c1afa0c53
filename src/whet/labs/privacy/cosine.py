"""Inverting gradients by their direction (Geiping et al. 2020, arXiv:2003.14053).

1 - cosine similarity plus the total variation of the image, minimised by Adam on the signs of the
gradient, with pixels held between black and white. Unlike L-BFGS it works for ReLU networks and
for trained ones, whose gradients are small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError
from . import idlg
from .gradients import Matching, Observation
from .recovered import EVERY, Array, Progress, Recovered
from .starts import State, best_of

ITERATIONS = 2000  # the paper takes 4,800 to 24,000
RATE = 0.1
VARIATION = 1e-2  # weight of the total variation
MILESTONES = (3 / 8, 5 / 8, 7 / 8)  # of the iterations, where the rate falls to a tenth


def cosine(
    observation: Observation,
    *,
    restarts: int = 2,
    iterations: int | None = None,
    adaptive: bool = True,
    seed: int = 0,
    on_progress: Progress | None = None,
    labels: Array | None = None,
    variation: float = VARIATION,
) -> Recovered:
    """The images whose gradients point the same way. Labels are iDLG's, or `labels`."""
    if labels is None:
        labels = idlg.labels(observation, seed)
    if labels is None:
        raise DataError(
            "this attack needs the labels, which the observed gradients do not tell",
            try_="labels=, what the attacker assumes; or method='dlg'",
        )
    matching = Matching(observation, masked=adaptive)
    given = torch.from_numpy(np.asarray(labels))
    low, high = observation.span
    steps = iterations or ITERATIONS
    lengths = matching.target.norm()

    def run(random: torch.Generator) -> Iterator[State]:
        x = torch.randn(observation.shape, generator=random).clamp(-0.5, 0.5).add(0.5)
        x.requires_grad_()
        optimizer = torch.optim.Adam([x], lr=RATE)
        milestones = [math.floor(share * steps) for share in MILESTONES]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones)

        def loss() -> Tensor:
            found = matching.gradients(low + (high - low) * x, given)
            match = 1 - (found @ matching.target) / (found.norm() * lengths).clamp_min(1e-30)
            return match + variation * total_variation(x)

        def state(value: float, evaluations: int) -> State:
            return State(value, low + (high - low) * x.detach(), given, evaluations)

        for step in range(steps):
            value = loss()
            if step % EVERY == 0:
                yield state(float(value.detach()), step + 1)
            (gradient,) = torch.autograd.grad(value, [x])
            x.grad = gradient.sign()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        yield state(float(loss().detach()), steps + 1)

    return best_of(
        "cosine", observation, run, restarts=restarts, seed=seed, on_progress=on_progress
    )


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference between neighbours."""
    if x.ndim != 4:
        return (x[..., 1:] - x[..., :-1]).abs().mean()
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()
