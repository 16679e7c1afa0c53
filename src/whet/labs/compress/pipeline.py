"""Compression in stages, as in Deep Compression (Han et al., arXiv:1510.00149).

Fewer channels, fewer weights, fewer values of these, and codes for what is left; training after
each loss. Every round of it is on disk before the next begins.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import DataError, SchemeError, option
from ..common.data import gather
from ..common.progress import Progress, bar
from .centroids import train_centroids
from .fit import check_example, check_teacher, fitting, floats
from .histogram import histograms
from .iterate import Evaluate, Train, Way, accuracy, become, check_counts, check_rounds, iterative
from .kmeans import Init
from .magnitude import by_layer
from .result import Compressed, Stage
from .sharing import bits_by_name, round_to_f16, share
from .storage import measure
from .store import Store, checksum
from .structure import Channels, Shares, check_channels
from .weights import Layers, all_weights, check_finite, finish, held, weights

Watch = Callable[[Stage], None]


def compress(
    model: nn.Module,
    data: Any = None,
    *,
    prune: float | Mapping[str, float] | None = 0.9,
    kmeans: int | Mapping[str, int] | None = 4,
    channels: Shares | None = None,
    distill: nn.Module | None = None,
    train: Train | None = None,
    evaluate: Evaluate | None = None,
    test: Any = None,
    folder: str | Path | None = None,
    half: bool = False,
    layers: Layers = None,
    scope: str = "global",
    init: Init = "linear",
    first: int = 0,
    rounds: int = 5,
    settle: int = 1,
    centroid_rounds: int = 1,
    epochs: int = 1,
    lr: float = 1e-3,
    batch: int = 64,
    losses: Sequence[Any] | None = None,
    seed: int = 0,
    progress: bool | Progress | None = None,
    watch: Watch | None = None,
) -> Compressed:
    """A smaller copy of the model, by the stages that are asked for, in this order.

    `first` rounds of training; `channels`, the share of channels that stays; `prune`, the share of
    weights that goes, of all or by layer; `kmeans`, bits of a weight; `half`, all numbers rounded
    to what 16 bits hold. A round of training is `train(model)`, or `epochs` of Adam on `data`, a
    pair of arrays or batches; with `distill`, a teacher, by its losses. `evaluate(model)` gives an
    accuracy, or `test` is judged by, or every fifth sample of `data`. `watch` is called after each
    stage. With a folder, the same call resumes an interrupted one.
    """
    check(model, prune, kmeans, channels, layers)
    check_rounds(rounds, settle)
    check_counts(first=first, centroid_rounds=centroid_rounds, seed=seed)
    if all(stage is None for stage in (prune, kmeans, channels)) and not (first or half):
        raise SchemeError(
            "there is nothing to do",
            try_=(option("prune", 0.9), option("kmeans", 4), option("channels", 0.5)),
        )
    data, test = (None if given is None else gather(given) for given in (data, test))
    train, evaluate = functions(
        model, data, test, train, evaluate, teacher=distill, losses=losses, epochs=epochs, lr=lr,
        batch=batch, seed=seed,
    )  # fmt: skip
    options = dict(
        first=first or None, channels=channels, prune=prune, kmeans=kmeans, scope=scope,
        half=half or None, layers=layers, init=init, rounds=rounds, settle=settle,
        centroid_rounds=centroid_rounds, epochs=epochs, lr=lr, batch=batch, seed=seed,
        distill=type(distill).__name__ if distill is not None else None,
    )  # fmt: skip
    run: dict[str, Any] = {
        "model": checksum(model),
        "epochs": epochs,
        "lr": lr,
        "batch": batch,
        "seed": seed,
    }
    run["teacher"] = None if distill is None else checksum(distill)
    run["losses"] = repr(losses)
    run |= {
        name: None if given is None else given.checksum
        for name, given in (("data", data), ("test", test))
    }
    with torch.random.fork_rng(devices=[]), bar(progress) as show:
        torch.manual_seed(seed)
        work = Work(copy.deepcopy(model), train, evaluate, folder, run, show, watch)
        work.begin()
        if first:
            work.rounds("train", first, train, first=first)
        if channels is not None:
            example = example_of(data)
            work.iterate("channels", Channels(example, channels), rounds, settle, None, scope)
        if prune is not None:
            work.iterate("prune", kept(prune), rounds, settle, layers, scope)
        if kmeans is not None:
            work.share(kmeans, init, layers, seed, centroid_rounds)
        if half:
            round_to_f16(work.model)
            work.rounds("f16", 0, train, model=checksum(work.model))
    return Compressed(work.model, tuple(work.stages), options, work.pictures)


@dataclass
class Work:
    """The model between stages. `run` has what the stored states depend on, stage by stage."""

    model: nn.Module
    train: Train
    evaluate: Evaluate
    folder: str | Path | None
    run: dict[str, Any]
    show: Progress
    watch: Watch | None
    stages: list[Stage] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)

    def store(self, name: str) -> Store:
        return Store(self.place(name), self.run)

    def place(self, name: str) -> Path | None:
        return None if self.folder is None else Path(self.folder) / name

    def add(self, name: str, found: float, began: float) -> None:
        seconds = time.perf_counter() - began
        self.stages.append(Stage.of(name, found, measure(self.model), seconds))
        if self.watch is not None:
            self.watch(self.stages[-1])

    def begin(self) -> None:
        began, store = time.perf_counter(), self.store("start")
        notes = store.load("start", self.model)
        found = accuracy(self.evaluate, self.model) if notes is None else float(notes["accuracy"])
        if notes is None:
            store.save("start", self.model, {"accuracy": found})
        self.add("start", found, began)

    def iterate(
        self, name: str, target: float | Mapping[str, float] | Way, rounds: int, settle: int,
        layers: Layers, scope: str,
    ) -> None:  # fmt: skip
        """Prune and retrain in rounds."""
        began = time.perf_counter()
        found = iterative(
            self.model, target, rounds, self.train, self.evaluate, settle=settle, layers=layers,
            scope=scope, folder=self.place(name), progress=self.named(name),
        )  # fmt: skip
        self.add(name, found.best.after, began)

    def named(self, name: str) -> Progress:
        return lambda _, done, total: self.show(name, done, total)

    def share(
        self, bits: int | Mapping[str, int], init: Init, layers: Layers, seed: int, rounds: int
    ) -> None:
        """Cluster, then train the centroids; zeros of layers that are not shared stay zero too."""
        before = copy.deepcopy(self.model)
        names = list(share(self.model, bits, init, layers, seed))
        after = copy.deepcopy(self.model)
        rest = [name for name in weights(self.model) if name not in names]

        def train(model: nn.Module) -> None:
            with held(model, rest) if rest else nullcontext():
                train_centroids(model, self.train, names)

        words = dict(kmeans=bits, init=init, layers=layers, centroid_rounds=rounds)
        self.rounds("kmeans", rounds, train, model=checksum(after), **words)
        self.pictures = histograms(before, after, self.model)

    def rounds(self, name: str, count: int, train: Train, **options: Any) -> None:
        """So many rounds of training; the best state, which may be that before the first."""
        self.run |= options
        began, store = time.perf_counter(), self.store(name)
        best, most = self.model, float("-inf")
        self.show(name, 0, count)
        for number in range(count + 1):
            notes = store.load(f"round-{number:03}", self.model)
            if notes is None:
                if number:
                    self.model.zero_grad()
                    train(self.model)
                    self.model.zero_grad()
                notes = {"accuracy": accuracy(self.evaluate, self.model)}
                store.save(f"round-{number:03}", self.model, notes)
            if float(notes["accuracy"]) > most:
                best, most = copy.deepcopy(self.model), float(notes["accuracy"])
            self.show(name, number, count)
        become(self.model, best)
        self.add(name, most, began)


def functions(
    model: nn.Module,
    data: Any,
    test: Any,
    train: Train | None,
    evaluate: Evaluate | None,
    *,
    teacher: nn.Module | None,
    losses: Sequence[Any] | None,
    **options: Any,
) -> tuple[Train, Evaluate]:
    """Those that are given, and those made of the data for the others."""
    if teacher is not None and train is not None:
        raise SchemeError(
            "distill= is for training by data=, and train= is given",
            try_="a train= that learns from the teacher",
        )
    if train is not None and evaluate is not None:
        return train, evaluate
    if data is None:
        raise DataError(
            "there is nothing to train or judge by", try_=("data=(x, y)", "train= and evaluate=")
        )
    made, judged, example = fitting(data, test, teacher=teacher, losses=losses, **options)
    for x in (example, *([] if test is None else [example_of(test)])):
        check_example(model, x)
    if teacher is not None:
        check_teacher(model, teacher, losses, example)
    return train or made, evaluate or judged


def check(
    model: nn.Module,
    prune: float | Mapping[str, float] | None,
    kmeans: int | Mapping[str, int] | None,
    channels: Shares | None,
    layers: Layers,
) -> None:
    """What is wrong with the options is known before anything is trained."""
    finish(model)
    check_finite(all_weights(model))
    fractions(prune)
    found = weights(model, layers)
    if isinstance(prune, Mapping):
        by_layer(found, {name: 1 - part for name, part in prune.items()})
    if kmeans is not None:
        bits_by_name(model, kmeans, layers)
    if channels is not None:
        check_channels(model, channels)


def fractions(prune: float | Mapping[str, float] | None) -> None:
    given = prune.values() if isinstance(prune, Mapping) else [] if prune is None else [prune]
    for part in given:
        if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 <= part < 1:
            percent = isinstance(part, (int, float)) and 1 < part < 100
            raise SchemeError(
                f"{option('prune', part)} is not a share of weights to remove, from 0 to below 1",
                try_=option("prune", part / 100 if percent else 0.9),
            )


def kept(prune: float | Mapping[str, float]) -> float | dict[str, float]:
    """What stays, of what goes."""
    if isinstance(prune, Mapping):
        return {name: 1 - part for name, part in prune.items()}
    return 1 - prune


def example_of(data: Any) -> Tensor:
    if data is None:
        raise DataError("channels= needs an example input", try_="data=(x, y), or shrink() before")
    return torch.from_numpy(floats(gather(data).inputs[0][:1]))
