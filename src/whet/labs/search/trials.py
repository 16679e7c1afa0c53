"""Trials: compile a candidate, train it for a while, and validate it on held-out samples.

A `Trial` is one split of the data. `Trials` runs candidates on several, by workers, and keeps their
outcomes on disk; contribution analysis is made of them.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import DataError, NotFinite, either
from ...runtime import Trainer
from ...workbench import Cut, Workbench
from ...writing import replacing
from ..common.data import Array, Samples
from ..common.progress import Progress, silent
from ..common.validate import DIVERGED, Outcome, validated
from ..common.workers import Workers
from .candidate import HEAD, Candidate, Contributions, Space

VERSION = 3  # of how candidates are trained
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


def schedule(done: float) -> float:
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

    @property
    def space(self) -> Space:
        return Space(self.bench.parameters)

    @property
    def lr(self) -> float:
        return self.bench.lr if self.settings.lr is None else self.settings.lr

    @property
    def name(self) -> str:
        """Of the model, the samples and the settings: outcomes are stored under it."""
        samples = (self.train.checksum, self.validation.checksum)
        settings = replace(self.settings, epochs=1)  # each outcome has its own
        words = (VERSION, self.bench.fingerprint, self.lr, settings, *samples)
        return hashlib.sha256(str(words).encode()).hexdigest()[:16]

    @functools.cached_property
    def cuts(self) -> list[Cut]:
        """Where candidates can share the features of their frozen first layers."""
        batches = -(-(len(self.train) + len(self.validation)) // self.bench.batch)
        return self.bench.cuts(ROOM // batches)

    def cut(self, candidate: Candidate) -> Cut | None:
        return self.bench.cut_before(self.space.trained(candidate).keys(), self.cuts)

    def run(self, candidate: Candidate, epochs: int | None = None) -> Outcome:
        """Train to the end, unless it diverges or gets far worse."""
        began, epochs = time.perf_counter(), epochs or self.settings.epochs
        training, steps = Training(self, candidate), len(self.train) // self.bench.batch
        outcome = start = training.outcome(0)
        for epoch in range(epochs):
            done = (epoch * steps + np.arange(steps) + 0.5) / (epochs * steps)
            if not training.epoch(epoch, [self.lr * schedule(d) for d in done]):
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
        self.trial, bench, cut = trial, trial.bench, trial.cut(candidate)
        self.train, self.validation = trial.train, trial.validation
        if cut is not None and (shared := shared_features(trial, cut)) is not None:
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
        bench = self.trial.bench
        try:
            return validated(self.trainer, self.validation, bench.batch, bench.classes, epochs)
        except NotFinite:
            return Outcome(math.nan if bench.classes is None else 0.0, DIVERGED, epochs)


# Features ---------------------------------------------------------------------------------------

Features = tuple[Samples, Samples] | None  # to train on and to validate by
_kept: dict[tuple[str, Cut], Features] = {}  # of the last cut
forget_features = _kept.clear


def shared_features(trial: Trial, cut: Cut) -> Features:
    """All samples as the frozen layers before a cut transform them, kept for the next trial.

    None if the samples of a batch depend on each other there.
    """
    key = (trial.name, cut)
    if key not in _kept:
        forget_features()
        _kept[key] = features(trial, cut)
    return _kept[key]


def features(trial: Trial, cut: Cut) -> Features:
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


# Many trials ------------------------------------------------------------------------------------

Job = tuple[int, Candidate]  # the number of a split, and what to try on it


class Store:
    """A folder for one model, data and settings: a line for each outcome, and the trained head."""

    def __init__(self, root: Path, trial: Trial) -> None:
        self.folder = root / trial.name
        self.file = self.folder / "outcomes.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot write to {root}", why=str(error.strerror)) from error

    def outcomes(self, epochs: int) -> dict[str, Outcome]:
        """After so many epochs, by the candidate as text; an incomplete line is passed over."""
        found = {}
        text = self.file.read_text(errors="replace") if self.file.exists() else ""
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                if entry["epochs"] == epochs:
                    found[entry["candidate"]] = Outcome.from_dict(entry["outcome"])
            except (ValueError, TypeError, KeyError):
                continue
        return found

    def add(self, candidate: Candidate, epochs: int, outcome: Outcome) -> None:
        entry = {"candidate": str(candidate), "epochs": epochs, "outcome": outcome.as_dict()}
        before = self.file.read_bytes()[-1:] if self.file.exists() else b""
        with open(self.file, "a") as file:  # on a new line, also after a killed run's last one
            file.write("\n" * (before not in (b"", b"\n")) + json.dumps(entry) + "\n")

    def head(self) -> dict[str, Array] | None:
        try:
            with np.load(self.folder / "head.npz", allow_pickle=False) as archive:
                return dict(archive)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # none, or incomplete
            return None

    def keep_head(self, head: dict[str, Array]) -> None:
        with replacing(self.folder / "head.npz") as file:
            np.savez(file, **head)  # type: ignore[arg-type]


def train_head(splits: Sequence[Trial], turn: int) -> dict[str, Array]:
    return splits[turn].train_head()


def run_trial(splits: Sequence[Trial], epochs: int, job: Job) -> Outcome:
    turn, candidate = job
    return splits[turn].run(candidate, epochs)


@dataclass(frozen=True)
class Trials:
    """Trials on splits of the data; those in the stores are not run again."""

    splits: tuple[Trial, ...]
    stores: tuple[Store, ...]
    workers: Workers = field(default_factory=Workers)
    progress: Progress = silent

    @classmethod
    def of(
        cls, splits: Sequence[Trial], folder: Path, workers: Workers, progress: Progress = silent
    ) -> Trials:
        """With trained heads: those in the stores, or new ones."""
        stores = [Store(folder, trial) for trial in splits]
        new = [turn for turn, store in enumerate(stores) if store.head() is None]
        heads = workers.results(partial(train_head, splits), new)
        for done, (turn, head) in enumerate(heads, 1):
            stores[turn].keep_head(head)
            progress("training the head alone", done, len(new))
        ready = [replace(t, head=s.head() or {}) for t, s in zip(splits, stores, strict=True)]
        return cls(tuple(ready), tuple(stores), workers, progress)

    @property
    def space(self) -> Space:
        return self.splits[0].space

    def outcomes(
        self, candidates: Iterable[Candidate], what: str, epochs: int, splits: int = 1
    ) -> dict[Candidate, list[Outcome]]:
        """Of each candidate after so many epochs, on each of the first splits."""
        wanted = list(itertools.product(range(splits), dict.fromkeys(candidates)))
        known = [store.outcomes(epochs) for store in self.stores]
        found = {(i, c): known[i][str(c)] for i, c in wanted if str(c) in known[i]}
        alike: dict[tuple[int, str], list[Candidate]] = {}  # as some layers have no bias
        for i, c in (job for job in wanted if job not in found):
            alike.setdefault((i, str(self.space.trained(c))), []).append(c)
        groups = {(i, some[0]): some for (i, _), some in alike.items()}
        self.progress(what, len(found), len(wanted))
        task = partial(run_trial, self.splits[:splits], epochs)
        for (i, first), outcome in self.workers.results(task, sorted(groups, key=self.position)):
            for c in groups[i, first]:
                self.stores[i].add(c, epochs, outcome)
                found[i, c] = outcome
            self.progress(what, len(found), len(wanted))
        return {c: [found[i, c] for i in range(splits)] for _, c in wanted}

    def position(self, job: Job) -> tuple[int, int]:
        """In this order, jobs that share features are next to each other, the slowest first."""
        cut = self.splits[0].cut(job[1])
        return job[0], -1 if cut is None else cut.position


def analyse(trials: Trials) -> Contributions:
    """Contributions by training: all prefixes of biases, and one weight at a time.

    A layer whose whole weight gains nothing is not tried in parts.
    """
    space, epochs = trials.space, trials.splits[0].settings.epochs

    def trained(candidates: list[Candidate], what: str) -> dict[Candidate, Outcome]:
        return {c: one for c, (one,) in trials.outcomes(candidates, what, epochs).items()}

    whole = [space.single(layer, 1.0) for layer in space.ratios]
    found = trained([*space.prefixes, *whole], "biases and whole layers")

    def gains(candidate: Candidate) -> bool:
        one, base = found[candidate], found[Candidate(candidate.biases)]
        return one.accuracy > base.accuracy or one.loss < base.loss

    worthwhile = {c.weights[0][0] for c in whole if gains(c)}
    parts = [c for c in space.singles if c.weights[0][0] in worthwhile]
    found |= trained([c for c in parts if c not in found], "parts of layers")
    measure = "loss" if math.isnan(found[HEAD].accuracy) else "accuracy"
    return Contributions.of(found, measure, space.layers)
