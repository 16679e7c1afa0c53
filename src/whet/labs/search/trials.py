"""Many trials, run by workers and kept on disk; contribution analysis is made of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..common.data import Array
from ..common.validate import Outcome
from ..common.workers import Workers
from .candidate import HEAD, Candidate, Contributions, Space
from .trial import Trial

VERSION = 3  # of how candidates are trained
Progress = Callable[[str, int, int], None]  # what, how many are done, of how many


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


class Store:
    """A folder for one model, data and settings: a line for each outcome, and the trained head."""

    def __init__(self, root: Path, trial: Trial) -> None:
        samples = (trial.train.checksum(), trial.validation.checksum())
        settings = replace(trial.settings, epochs=1)  # each outcome has its own
        words = (VERSION, trial.bench.fingerprint, trial.lr, settings, *samples)
        self.folder = root / hashlib.sha256(str(words).encode()).hexdigest()[:16]
        self.file = self.folder / "outcomes.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot write to {root}", why=str(error.strerror)) from error

    def outcomes(self) -> dict[tuple[Candidate, int], Outcome]:
        """By candidate and epochs; an incomplete line is passed over."""
        found = {}
        text = self.file.read_text(errors="replace") if self.file.exists() else ""
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                key = Candidate.parse(entry["candidate"]), int(entry["epochs"])
                found[key] = Outcome.from_dict(entry["outcome"])
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
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # none, or incomplete
            return None

    def keep_head(self, head: dict[str, Array]) -> None:
        partial = self.folder / f"head.{os.getpid()}.npz"
        np.savez(partial, **head)  # type: ignore[arg-type]
        os.replace(partial, self.folder / "head.npz")


@dataclass(frozen=True)
class OnSplits:
    """Runs trials on splits of the data; goes to worker processes."""

    splits: tuple[Trial, ...]

    def run(self, job: tuple[int, Candidate | None]) -> Any:
        """The outcome of a candidate on a split, or its trained head."""
        turn, candidate = job
        trial = self.splits[turn]
        return trial.train_head() if candidate is None else trial.run(candidate)


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
        stores = tuple(Store(folder, trial) for trial in splits)
        named = tuple(
            replace(trial, name=store.folder.name)
            for trial, store in zip(splits, stores, strict=True)
        )
        new = [(turn, None) for turn, store in enumerate(stores) if store.head() is None]
        for done, ((turn, _), head) in enumerate(workers.results(OnSplits(named), new), 1):
            stores[turn].keep_head(head)
            progress("training the head alone", done, len(new))
        ready = (replace(t, head=s.head() or {}) for t, s in zip(named, stores, strict=True))
        return cls(tuple(ready), stores, workers, progress)

    @property
    def space(self) -> Space:
        return self.splits[0].space

    def outcomes(
        self, candidates: Iterable[Candidate], what: str, epochs: int, splits: int = 1
    ) -> dict[Candidate, list[Outcome]]:
        """Of each candidate after so many epochs, on each of the first splits."""
        trials = [replace(t, settings=replace(t.settings, epochs=epochs)) for t in self.splits]
        wanted = list(itertools.product(range(splits), dict.fromkeys(candidates)))
        known = [store.outcomes() for store in self.stores]
        found = {(i, c): known[i][c, epochs] for i, c in wanted if (c, epochs) in known[i]}
        alike: dict[tuple[int, str], list[Candidate]] = {}  # as some layers have no bias
        for i, c in (job for job in wanted if job not in found):
            alike.setdefault((i, str(self.space.trained(c))), []).append(c)
        groups = {(i, some[0]): some for (i, _), some in alike.items()}
        self.progress(what, len(found), len(wanted))
        task = OnSplits(tuple(trials[:splits]))
        for (i, candidate), outcome in self.workers.results(task, self.ordered(groups)):
            for c in groups[i, candidate]:
                self.stores[i].add(c, epochs, outcome)
                found[i, c] = outcome
            self.progress(what, len(found), len(wanted))
        return {c: [found[i, c] for i in range(splits)] for _, c in wanted}

    def ordered(self, jobs: Iterable[tuple[int, Candidate]]) -> list[tuple[int, Candidate]]:
        """Those that share features next to each other, the slowest of a split first."""

        def position(job: tuple[int, Candidate]) -> tuple[int, int]:
            cut = self.splits[0].cut(job[1])
            return job[0], -1 if cut is None else cut.position

        return sorted(jobs, key=position)


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
