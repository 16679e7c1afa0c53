"""Contribution analysis: what the last k biases gain, and what each layer's weights on top."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...scheme import Parameter, parameters_of
from ...scheme.contribution import (
    Candidate,
    Contributions,
    Outcome,
    choices,
    depth,
    names_of,
    reach,
)
from .cut import cut_before
from .engine import Engine, Task
from .lesson import Bench
from .store import Store

Progress = Callable[[str, int, int], None]  # what, how much is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """For those who do not want to watch."""


@dataclass(frozen=True)
class Trials:
    """Candidates on a bench: tried on an engine, remembered in a store."""

    bench: Bench
    store: Store
    engine: Engine = field(default_factory=Engine)
    progress: Progress = silent

    @property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.bench.model.training.graph)

    @classmethod
    def begin(
        cls, bench: Bench, store: Store, engine: Engine, progress: Progress = silent
    ) -> Trials:
        """With a trained head: the one in the store, or a new one."""
        head = store.head()
        if head is None:
            progress("training the head alone", 0, 1)
            head = dict(bench.with_trained_head().head)
            store.keep_head(head)
            progress("training the head alone", 1, 1)
        return cls(replace(bench, head=head, name=store.folder.name), store, engine, progress)

    def outcomes(
        self, candidates: Iterable[Candidate], what: str, epochs: int | None = None
    ) -> dict[Candidate, Outcome]:
        """What each achieves after so many epochs, or those of a lesson."""
        length = self.bench.lesson.epochs if epochs is None else epochs
        bench = replace(self.bench, lesson=replace(self.bench.lesson, epochs=length))
        return self.tried(bench, candidates, what, length)

    def tried(
        self, task: Task, candidates: Iterable[Candidate], what: str, length: int
    ) -> dict[Candidate, Outcome]:
        """What a task gives for each; only what the store does not know is run."""
        wanted = list(dict.fromkeys(candidates))
        known = self.store.outcomes()
        found = {c: known[c, length] for c in wanted if (c, length) in known}
        twins = self.twins([c for c in wanted if c not in found])
        self.progress(what, len(found), len(wanted))
        for candidate, outcome in self.engine.results(task, self.in_order(list(twins))):
            for twin in twins[candidate]:
                self.store.add(twin, length, outcome)
                found[twin] = outcome
            self.progress(what, len(found), len(wanted))
        return {c: found[c] for c in wanted}

    def twins(self, candidates: Sequence[Candidate]) -> dict[Candidate, list[Candidate]]:
        """Candidates that train the same, as layers may have no bias, by the first of each."""
        parameters = self.parameters
        same: dict[str, list[Candidate]] = {}
        for c in candidates:
            same.setdefault(str(c.scheme(parameters).resolve(parameters)), []).append(c)
        return {some[0]: some for some in same.values()}

    def in_order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that share a frozen beginning one after the other, the longest to train first."""
        model, parameters = self.bench.model, self.parameters
        places = self.bench.places

        def position(candidate: Candidate) -> int:
            names = candidate.scheme(parameters).resolve(parameters).keys()
            cut = cut_before(model, names, places)
            return -1 if cut is None else cut.position

        return sorted(candidates, key=position)


def analyse(trials: Trials) -> Contributions:
    """Every candidate with biases alone, and with one layer's weights, fine-tuned for real.

    A layer that gains nothing when it trains whole is not tried in parts.
    """
    parameters = trials.parameters
    offered = choices(parameters)
    biases = [Candidate(k) for k in range(depth(parameters) + 1)]
    whole = [one_weight(parameters, layer, 1.0) for layer in offered]
    found = trials.outcomes([*biases, *whole], "biases and whole layers")
    parts = [
        one_weight(parameters, layer, ratio)
        for layer, ratios in offered.items()
        if found[c := one_weight(parameters, layer, 1.0)].better_than(found[Candidate(c.biases)])
        for ratio in ratios[:-1]
    ]
    found |= trials.outcomes(parts, "parts of layers")
    measure = "loss" if math.isnan(found[Candidate()].accuracy) else "accuracy"
    return Contributions.of(found, measure, names_of(parameters))


def one_weight(parameters: Sequence[Parameter], layer: int, ratio: float) -> Candidate:
    return Candidate(reach(parameters, layer), ((layer, ratio),))
