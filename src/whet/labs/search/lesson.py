"""One candidate, tried: compile it, train it for a while, and judge it on held-out samples."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import DataError, NotFinite, either
from ...frontend.model import Model
from ...ir import Array, Role
from ...pipeline import Options, assemble
from ...runtime import Trainer
from ...scheme import parameters_of
from ...scheme.contribution import DIVERGED, Candidate, Outcome, rounded
from .cut import Cut, behind, cut_before, cuts, up_to
from .samples import Classes, Samples, classes_of

ROOM = 1 << 29  # bytes that the results of a shared beginning may take
HOPELESS = 10.0  # points of accuracy below the start, at which a candidate is given up


@dataclass(frozen=True)
class Lesson:
    """How candidates are tried.

    The head is trained alone first, for up to `head_epochs`, and every candidate begins with it.
    Then the rate rises over the first tenth and falls to 0 along a cosine.
    """

    epochs: int = 3
    head_epochs: int = 20
    rate: float | None = None  # that of the optimizer
    held_out: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        whole = all(type(n) is int for n in (self.epochs, self.head_epochs, self.seed))
        if not whole or self.epochs < 1 or self.head_epochs < 1 or self.seed < 0:
            raise DataError("a lesson has one epoch or more, and a seed from 0 on", why=str(self))
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise DataError(f"rate={self.rate} lets nothing learn", try_="0.01, or None")

    def schedule(self, done: float) -> float:
        """The share of the rate after this share of the lesson."""
        warm = 0.1
        if done < warm:
            return done / warm
        return 0.5 * (1 + math.cos(math.pi * (done - warm) / (1 - warm)))


@dataclass(frozen=True)
class Bench:
    """Everything it takes to try a candidate; goes to worker processes as it is."""

    model: Model
    train: Samples
    judge: Samples
    lesson: Lesson
    head: Mapping[str, Array] = field(default_factory=dict)  # what every candidate begins with
    name: str = ""  # of model and samples, so that another process knows them again

    @property
    def batch(self) -> int:
        return self.model.training.graph.leaves_of(Role.INPUT)[0].shape[0]

    @property
    def places(self) -> list[Cut]:
        """Where candidates can share what comes before."""
        batches = -(-(len(self.train) + len(self.judge)) // self.batch)
        return cuts(self.model, ROOM // batches)

    @property
    def rate(self) -> float:
        return self.model.lr if self.lesson.rate is None else self.lesson.rate

    def with_trained_head(self) -> Bench:
        """The same with a head that was trained alone.

        It learns until the loss on held-out samples has not fallen for two epochs.
        """
        pupil = Pupil(self, Candidate())
        best, since, epoch = pupil.outcome(0), 0, 0
        head = pupil.trainer.arrays()
        while epoch < self.lesson.head_epochs and since < 2:
            if not pupil.epoch(epoch, [1.0]):
                raise NotFinite(
                    "the head alone diverges",
                    why=f"it is trained at a rate of {self.rate:g}",
                    try_="a smaller "
                    + either("rate, by the optimizer or by Lesson(rate=...)", "--lr"),
                )
            epoch += 1
            now = pupil.outcome(epoch)
            if now.loss < best.loss:
                best, since, head = now, 0, pupil.trainer.arrays()
            else:
                since += 1
        return replace(self, head=head)

    def run(self, candidate: Candidate) -> Outcome:
        """Fine-tune, as far as it is of use."""
        began = time.perf_counter()
        pupil = Pupil(self, candidate)
        epochs = self.lesson.epochs
        outcome = start = pupil.outcome(0)
        for epoch in range(epochs):
            steps = len(self.train) // self.batch
            done = (epoch * steps + np.arange(steps) + 0.5) / (epochs * steps)
            if not pupil.epoch(epoch, [self.lesson.schedule(float(d)) for d in done]):
                outcome = Outcome(0.0 * start.accuracy, DIVERGED, epoch)
                break
            outcome = pupil.outcome(epoch + 1)
            if outcome.accuracy < start.accuracy - HOPELESS:
                break
        return replace(outcome, seconds=round(time.perf_counter() - began, 2))


class Pupil:
    """A candidate's program with its memory, and the samples as it sees them."""

    def __init__(self, bench: Bench, candidate: Candidate) -> None:
        self.bench = bench
        model = bench.model
        parameters = parameters_of(model.training.graph)
        scheme = candidate.scheme(parameters)
        cut = cut_before(model, scheme.resolve(parameters).keys(), bench.places)
        self.train, self.judge = bench.train, bench.judge
        shared = None if cut is None else shared_features(Key(bench), cut)
        if cut is not None and shared is not None:
            self.train, self.judge = shared
            model = behind(model, cut)
        program = assemble(model, scheme, Options(grow=False))
        self.trainer: Trainer = program.load(threads=1)
        self.trainer.load_state_dict(bench.head)

    def epoch(self, number: int, shares: list[float]) -> bool:
        """Train on every sample once, at these shares of the rate; False if it diverged."""
        bench = self.bench
        random = np.random.default_rng([bench.lesson.seed, number])
        order = random.permutation(len(self.train))
        try:
            for i, (x, y) in enumerate(self.train.batches(order, bench.batch)):
                self.trainer.step(x, y, lr=bench.rate * shares[min(i, len(shares) - 1)])
        except NotFinite:
            return False
        return True

    def outcome(self, epochs: int) -> Outcome:
        known = classes_of(self.bench.model.training.graph)
        try:
            return judged(self.trainer, self.judge, self.bench.batch, known, epochs)
        except NotFinite:
            return Outcome(math.nan if known is None else 0.0, DIVERGED, epochs)


def judged(
    trainer: Trainer, samples: Samples, batch: int, known: Classes | None, epochs: int
) -> Outcome:
    """Accuracy and cross-entropy, without weights and smoothing; without classes the loss alone."""
    right, counted, loss = 0, 0, 0.0
    for x, y, count in samples.padded(batch):
        scores = trainer.predict(x)
        scores, labels = scores[:count], y[:count]
        if known is None or not classes_second(scores, labels):
            return Outcome(math.nan, mean_loss(trainer, samples, batch), epochs)
        seen = labels != known.ignored
        right += int((scores.argmax(1) == labels)[seen].sum())
        wide = scores.astype(np.float64)
        wide -= wide.max(1, keepdims=True)
        logs = wide - np.log(np.exp(wide).sum(1, keepdims=True))
        index = np.expand_dims(np.where(seen, labels, 0), 1)
        loss -= float(np.take_along_axis(logs, index, 1).squeeze(1)[seen].sum())
        counted += int(seen.sum())
    mean = loss / max(counted, 1)
    mean = rounded(mean) if math.isfinite(mean) else DIVERGED
    return Outcome(round(100 * right / max(counted, 1), 4), mean, epochs)


def classes_second(scores: Array, labels: Array) -> bool:
    """Whether axis 1 of the scores is that of the classes, and no other one could be."""
    fits = (len(scores), *scores.shape[2:]) == labels.shape
    return fits and scores.shape[1] not in labels.shape[1:]


def mean_loss(trainer: Trainer, samples: Samples, batch: int) -> float:
    """By steps of rate 0, after which everything is put back as it was."""
    before = trainer.save()
    every = np.arange(len(samples))
    try:
        losses = [trainer.step(x, y, lr=0.0) for x, y in samples.batches(every, batch)]
    finally:
        trainer.load(before)
    return float(np.mean(losses))


class Key:
    """A bench that compares by being the same one, so that what it gives can be remembered."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        one = (id(bench.model), id(bench.train), id(bench.judge))
        self.parts: tuple[object, ...] = (bench.name,) if bench.name else one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)


@functools.lru_cache(maxsize=1)
def shared_features(key: Key, cut: Cut) -> tuple[Samples, Samples] | None:
    """What the frozen beginning of the model makes of every sample; kept for the next candidate.

    None if samples of a batch are not apart there: each then depends on its neighbours.
    """
    bench = key.bench
    scheme = Candidate().scheme(parameters_of(bench.model.training.graph))
    trainer = assemble(up_to(bench.model, cut), scheme, Options(grow=False)).load(threads=1)
    if not apart(trainer, bench):
        return None

    def features(samples: Samples) -> Samples:
        parts = [trainer.predict(x)[:count] for x, _, count in samples.padded(bench.batch)]
        return Samples((np.concatenate(parts),), samples.labels)

    return features(bench.train), features(bench.judge)


def apart(trainer: Trainer, bench: Bench) -> bool:
    """Whether a sample gives the same in another place of a batch, among other samples."""
    size, count = bench.batch, len(bench.train)
    here = np.arange(size) % count
    there = np.append((np.arange(size - 1) + size) % count, here[0])  # the first one last
    one, other = (
        trainer.predict(tuple(x[which] for x in bench.train.inputs)) for which in (here, there)
    )
    return np.allclose(one[0], other[-1], rtol=1e-4, atol=1e-5)
