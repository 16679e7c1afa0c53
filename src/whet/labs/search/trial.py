"""One trial: compile a candidate, train it for a while, and validate it on held-out samples."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import DataError, NotFinite, either
from ...runtime import Trainer
from ...workbench import Cut, Workbench
from ..common.data import Array, Samples
from ..common.validate import DIVERGED, Outcome, validated
from .candidate import HEAD, Candidate, Space

ROOM = 1 << 29  # bytes that the shared features of all samples may take
STOP_BELOW = 10.0  # points of accuracy below the start at which a trial is stopped


@dataclass(frozen=True)
class TrialSettings:
    """How candidates are trained.

    The head is trained alone first, for up to `head_epochs`; every candidate starts from it. The
    learning rate `lr`, by default the optimizer's, warms up over the first tenth of `epochs` and
    then falls to 0 along a cosine; `head_lr`, by default the same, is constant. A share of the
    data, `held_out`, is for validation.
    """

    epochs: int = 3
    head_epochs: int = 20
    lr: float | None = None
    head_lr: float | None = None
    held_out: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        whole = all(type(n) is int for n in (self.epochs, self.head_epochs, self.seed))
        if not whole or self.epochs < 1 or self.head_epochs < 1 or self.seed < 0:
            raise DataError("epochs must be 1 or more, and the seed 0 or more", why=str(self))
        for name, rate in (("lr", self.lr), ("head_lr", self.head_lr)):
            if rate is not None and not 0 < rate < math.inf:
                raise DataError(f"{name}={rate} is not a learning rate", try_="0.01, or None")

    def schedule(self, done: float) -> float:
        """The share of the learning rate after this share of the training."""
        warm_up = 0.1
        if done < warm_up:
            return done / warm_up
        return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))


@dataclass(frozen=True)
class Trial:
    """Everything it takes to try a candidate; goes to worker processes as it is."""

    bench: Workbench
    train: Samples
    validation: Samples
    settings: TrialSettings
    head: Mapping[str, Array] = field(default_factory=dict)  # that every candidate starts with
    name: str = ""  # of the model and the samples; features are shared under it

    @property
    def space(self) -> Space:
        return Space(self.bench.parameters)

    @property
    def lr(self) -> float:
        return self.bench.lr if self.settings.lr is None else self.settings.lr

    @functools.cached_property
    def cuts(self) -> list[Cut]:
        """Where candidates can share the features of their frozen first layers."""
        batches = -(-(len(self.train) + len(self.validation)) // self.bench.batch)
        return self.bench.cuts(ROOM // batches)

    def cut(self, candidate: Candidate) -> Cut | None:
        return self.bench.cut_before(self.space.trained(candidate).keys(), self.cuts)

    def run(self, candidate: Candidate) -> Outcome:
        """Train to the end, unless it diverges or gets far worse."""
        began = time.perf_counter()
        training = Training(self, candidate)
        epochs, steps = self.settings.epochs, len(self.train) // self.bench.batch
        outcome = start = training.outcome(0)
        for epoch in range(epochs):
            done = (epoch * steps + np.arange(steps) + 0.5) / (epochs * steps)
            if not training.epoch(epoch, [self.lr * self.settings.schedule(d) for d in done]):
                outcome = Outcome(0.0 * start.accuracy, DIVERGED, epoch)
                break
            outcome = training.outcome(epoch + 1)
            if outcome.accuracy < start.accuracy - STOP_BELOW:
                break
        return replace(outcome, seconds=round(time.perf_counter() - began, 2))

    def train_head(self) -> dict[str, Array]:
        """The head trained alone, until its validation loss has not fallen for two epochs."""
        training, lr = Training(self, HEAD), self.settings.head_lr or self.lr
        best, best_epoch, head = training.outcome(0).loss, 0, training.trainer.arrays()
        for epoch in range(self.settings.head_epochs):
            if not training.epoch(epoch, [lr]):
                where = either("lr, by the optimizer or by TrialSettings(lr=...)", "--lr")
                why = f"it is trained at a learning rate of {lr:g}"
                raise NotFinite("the head alone diverges", why=why, try_=f"a smaller {where}")
            loss = training.outcome(epoch + 1).loss
            if loss < best:
                best, best_epoch, head = loss, epoch + 1, training.trainer.arrays()
            elif epoch + 1 - best_epoch == 2:
                break
        return head


class Training:
    """A candidate's program, and the samples as it sees them."""

    def __init__(self, trial: Trial, candidate: Candidate) -> None:
        self.trial, self.classes = trial, trial.bench.classes
        bench, cut = trial.bench, trial.cut(candidate)
        self.train, self.validation = trial.train, trial.validation
        shared = None if cut is None else shared_features(trial, cut)
        if cut is not None and shared is not None:
            (self.train, self.validation), bench = shared, bench.after(cut)
        self.trainer = bench.trainer(candidate.scheme(trial.bench.parameters))
        self.trainer.load_state_dict(trial.head)

    def epoch(self, number: int, lrs: list[float]) -> bool:
        """Train on every sample once, at the learning rate of each step; False if diverged."""
        random = np.random.default_rng([self.trial.settings.seed, number])
        order = random.permutation(len(self.train))
        try:
            for i, (x, y) in enumerate(self.train.batches(order, self.trial.bench.batch)):
                self.trainer.step(x, y, lr=lrs[min(i, len(lrs) - 1)])
        except NotFinite:
            return False
        return True

    def outcome(self, epochs: int) -> Outcome:
        try:
            return validated(
                self.trainer, self.validation, self.trial.bench.batch, self.classes, epochs
            )
        except NotFinite:
            return Outcome(math.nan if self.classes is None else 0.0, DIVERGED, epochs)


_kept: dict[tuple[str, Cut], tuple[Samples, Samples] | None] = {}  # of the last cut


def shared_features(trial: Trial, cut: Cut) -> tuple[Samples, Samples] | None:
    """All samples as the frozen layers before a cut transform them, kept for the next trial.

    None if the samples of a batch depend on each other there.
    """
    if not trial.name:
        return features(trial, cut)
    if (trial.name, cut) not in _kept:
        _kept.clear()
        _kept[trial.name, cut] = features(trial, cut)
    return _kept[trial.name, cut]


def forget_features() -> None:
    _kept.clear()


def features(trial: Trial, cut: Cut) -> tuple[Samples, Samples] | None:
    size = trial.bench.batch
    trainer = trial.bench.before(cut).trainer(HEAD.scheme(trial.bench.parameters))
    if not independent(trainer, trial.train, size):
        return None

    def through(samples: Samples) -> Samples:
        parts = [trainer.predict(x)[:count] for (x, _), count in samples.padded(size)]
        return Samples.of([np.concatenate(parts)], samples.labels)

    return through(trial.train), through(trial.validation)


def independent(trainer: Trainer, samples: Samples, size: int) -> bool:
    """Whether a sample gives the same at another place in a batch of other samples."""
    here = np.arange(size) % len(samples)
    there = np.append((np.arange(size - 1) + size) % len(samples), here[0])
    one, other = (trainer.predict(samples.at(which)[0]) for which in (here, there))
    return np.allclose(one[0], other[-1], rtol=1e-4, atol=1e-5)
