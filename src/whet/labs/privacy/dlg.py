"""Deep Leakage from Gradients (Zhu et al. 2019, arXiv:1906.08935).

Start from a dummy batch, and move it by L-BFGS until its gradients are those observed. As it was
published, the attack starts from normal noise, optimises the labels as well, takes steps of fixed
length and often diverges. An adaptive attacker starts near mid-grey and optimises in variables made
for images (basis), takes the labels from the last layer (iDLG), ignores coordinates that a defence
removed, searches along each direction, and stops when what is left is the noise of the defence.
Both compute in float64, which costs no more on networks this small and gets further.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import DataError
from . import idlg
from .basis import CONTRAST, ToInput, images_from
from .gradients import Matching, Observation
from .recovered import EVERY, Array, Progress, Recovered
from .starts import State, best_of

ITERATIONS = 600
HISTORY = 100
ENOUGH = 1e-12  # of the squared norm of what was observed: what is left is rounding


def dlg(
    observation: Observation,
    *,
    restarts: int = 4,
    iterations: int | None = None,
    adaptive: bool = True,
    seed: int = 0,
    on_progress: Progress | None = None,
    labels: Array | None = None,
    line_search: bool | None = None,
    masked: bool | None = None,
    one_by_one: bool = False,
) -> Recovered:
    """The images whose gradients match best.

    `labels` are known to this attacker. `line_search` and `masked` are as `adaptive` unless they
    are given. `one_by_one` moves one sample of the batch at a time, as the paper has it.
    """
    if labels is None and adaptive:
        labels = idlg.labels(observation, seed)
    if labels is None and not isinstance(observation.loss, nn.CrossEntropyLoss):
        raise DataError(
            "the labels of this loss cannot be guessed", try_="labels=, what the attacker assumes"
        )
    matching = Matching(
        observation, masked=adaptive if masked is None else masked, dtype=torch.float64
    )
    given = None if labels is None else torch.from_numpy(np.asarray(labels))
    search = adaptive if line_search is None else line_search
    blocks = math.ceil((iterations or ITERATIONS) / EVERY)

    to_input = images_from(observation.shape, observation.span) if adaptive else identity
    enough = ENOUGH * float(matching.target.square().sum())
    if adaptive:
        enough = max(enough, len(matching.target) * observation.noise**2)

    def run(random: torch.Generator) -> Iterator[State]:
        z = torch.randn(observation.shape, generator=random, dtype=torch.float64)
        z = CONTRAST * z if adaptive else z
        logits = torch.randn(len(z), observation.classes, generator=random, dtype=z.dtype)
        dummy = Dummy(matching, to_input, z, logits if given is None else given)
        dummy.scaled = adaptive and observation.scaled
        return descend(dummy, blocks, search, one_by_one, enough)

    return best_of("dlg", observation, run, restarts=restarts, seed=seed, on_progress=on_progress)


def identity(z: Tensor) -> Tensor:
    return z


class Dummy:
    """A dummy batch: each sample a tensor of its own, with labels, or logits to find them."""

    def __init__(self, matching: Matching, to_input: ToInput, z: Tensor, labels: Tensor) -> None:
        self.matching, self.to_input, self.labels = matching, to_input, labels
        self.samples = [[part.clone().requires_grad_()] for part in z.split(1)]
        if self.soft:
            for own, row in zip(self.samples, labels.split(1), strict=True):
                own.append(row.clone().requires_grad_())
        self.scaled = False  # whether gradients match up to a factor
        self.evaluations = 0

    @property
    def soft(self) -> bool:
        return self.labels.is_floating_point()

    @property
    def x(self) -> Tensor:
        return self.to_input(torch.cat([own[0] for own in self.samples]))

    @property
    def logits(self) -> Tensor:
        return torch.cat([own[1] for own in self.samples])

    def loss(self) -> Tensor:
        self.evaluations += 1
        y = F.softmax(self.logits, -1) if self.soft else self.labels
        found, seen = self.matching.gradients(self.x, y), self.matching.target
        if self.scaled:  # by the factor that fits best
            found = found * ((found @ seen) / (found @ found).clamp_min(1e-300))
        return (found - seen).square().sum()

    def state(self, loss: float) -> State:
        labels = self.logits.argmax(-1) if self.soft else self.labels
        return State(loss, self.x, labels, self.evaluations)


def descend(
    dummy: Dummy, blocks: int, line_search: bool, one_by_one: bool, enough: float
) -> Iterator[State]:
    """The state at the start and after every block of iterations."""
    groups = dummy.samples if one_by_one else [[t for own in dummy.samples for t in own]]
    optimizers = [
        torch.optim.LBFGS(
            group, lr=1, max_iter=EVERY, max_eval=3 * EVERY, history_size=HISTORY,
            tolerance_grad=0, tolerance_change=0,
            line_search_fn="strong_wolfe" if line_search else None,
        )
        for group in groups
    ]  # fmt: skip
    loss = float(dummy.loss().detach())
    yield dummy.state(loss)
    for block in range(blocks):
        group, optimizer = groups[block % len(groups)], optimizers[block % len(groups)]

        def closure(group: list[Tensor] = group) -> Tensor:
            found = dummy.loss()
            for tensor, gradient in zip(group, torch.autograd.grad(found, group), strict=True):
                tensor.grad = gradient
            return found.detach()

        optimizer.step(closure)
        loss = float(dummy.loss().detach())
        yield dummy.state(loss)
        if loss <= enough:
            return
