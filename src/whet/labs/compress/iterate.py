"""Prune and retrain in rounds, along a schedule, with a state on disk after each.

The share that is kept follows the cubic schedule of Zhu and Gupta (arXiv:1710.01878): much is
removed first, when it costs little, and less and less towards the target.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import nn

from ...errors import DataError, SchemeError
from ..common.progress import Progress, bar
from .magnitude import Pruned, check_share, how_many, prune
from .store import Store, arrays_of, checksum, set_arrays
from .tables import aligned, percent
from .weights import Layers, finish, held, weights

Train = Callable[[nn.Module], None]
Evaluate = Callable[[nn.Module], float]
Target = float | Mapping[str, float]


class Way(Protocol):
    """How a model is made smaller: to a level, 1 for as it is and 0 for the target."""

    def reduce(self, model: nn.Module, level: float) -> None: ...

    def train(self, model: nn.Module, train: Train) -> None: ...

    def words(self) -> dict[str, object]:
        """What makes a run of it another run, for JSON."""


@dataclass(frozen=True)
class Magnitude:
    """The largest weights stay: a share of all, or of each layer by name."""

    target: Target
    scope: str = "global"
    layers: Layers = None
    biases: bool = False

    def reduce(self, model: nn.Module, level: float) -> None:
        target, rest = self.target, (self.layers, self.biases)
        if isinstance(target, Mapping):
            shares = {name: share + (1 - share) * level for name, share in target.items()}
            prune(model, scope=shares, layers=rest[0], biases=rest[1])
            return
        size = sum(w.size for w in weights(model, *rest).values())
        count = how_many(None, target, size) if is_count(target) else how_many(target, None, size)  # type: ignore[arg-type]
        count += round((size - count) * level)
        prune(model, nonzeros=count, scope=self.scope, layers=rest[0], biases=rest[1])

    def train(self, model: nn.Module, train: Train) -> None:
        with held(model, self.layers, self.biases):
            train(model)

    def words(self) -> dict[str, object]:
        return {"way": "magnitude", **asdict(self)}


def is_count(target: Target) -> bool:
    return isinstance(target, int) and not isinstance(target, bool) and target > 1


@dataclass(frozen=True)
class Round:
    """One round: numbers of the model that are not zero, accuracy before and after training."""

    number: int
    nonzeros: int
    kept: float  # of the parameters that the model began with
    before: float
    after: float
    at_target: bool
    seconds: float


@dataclass(frozen=True)
class Iterated:
    """Every round; the model has the numbers of the best of those at the target."""

    base: float  # accuracy before the first
    rounds: tuple[Round, ...]
    weights: Pruned | None  # of the model as it is now

    @property
    def best(self) -> Round:
        return max((r for r in self.rounds if r.at_target), key=lambda r: r.after)

    def __str__(self) -> str:
        lines = [("round", "non-zero", "kept", "pruned", "retrained")]
        lines += [
            (f"{r.number}{' *' if r == self.best else ''}", f"{r.nonzeros:,}", percent(r.kept),
             f"{r.before:.2f}", f"{r.after:.2f}")
            for r in self.rounds
        ]  # fmt: skip
        return f"{aligned(lines)}\nbefore any pruning: {self.base:.2f}; * is what the model has"


def cubic(part: float) -> float:
    """What is still to be removed after a part of the rounds."""
    return (1 - part) ** 3


def iterative(
    model: nn.Module,
    target: Target | Way,
    rounds: int,
    train: Train,
    evaluate: Evaluate,
    *,
    settle: int = 0,
    scope: str = "global",
    layers: Layers = None,
    biases: bool = False,
    folder: str | Path | None = None,
    progress: bool | Progress | None = None,
) -> Iterated:
    """Prune to `target` in place, with one round of `train` after each of `rounds` prunings.

    `target` is the share or the number of weights that stay, shares by layer, or another way such
    as `Channels`. `settle` adds rounds of training at the target. The model gets the best state at
    the target; if this is interrupted or fails, it is as it was before. With a folder, the same
    call then resumes after the last whole round; the result is that of an uninterrupted run, if
    `train` is random by PyTorch's generator or not at all.
    """
    check_rounds(rounds, settle)
    finish(model)
    way = as_way(target, scope, layers, biases)
    start = count_parameters(model)
    plan = [cubic((i + 1) / rounds) for i in range(rounds)] + [0.0] * settle
    way.reduce(copy.deepcopy(model), 0.0)  # errors before any work
    run = {"model": checksum(model), "rounds": rounds, "settle": settle, **way.words()}
    store = Store(folder, run)
    done: list[Round] = []
    first = store.load("start", model)
    base = accuracy(evaluate, model) if first is None else float(first["base"])
    if first is None:
        store.save("start", model, {"base": base})
    original = best = copy.deepcopy(model)
    try:
        with bar(progress) as show:
            show("pruning", 0, len(plan))
            for number, level in enumerate(plan, 1):
                one = one_round(model, way, level, number, store, start, train, evaluate)
                done.append(one)
                if one.at_target and one == Iterated(base, tuple(done), None).best:
                    best = copy.deepcopy(model)
                show("pruning", number, len(plan))
    except BaseException:
        finish(model)
        become(model, original)
        raise
    become(model, best)
    return Iterated(base, tuple(done), Pruned.of(model, layers, biases))


def one_round(
    model: nn.Module, way: Way, level: float, number: int, store: Store, start: int,
    train: Train, evaluate: Evaluate,
) -> Round:  # fmt: skip
    """The stored one, or a new one that is stored."""
    began = time.perf_counter()
    way.reduce(model, level)
    name = f"round-{number:03}"
    if (notes := store.load(name, model)) is not None:
        return Round(**notes["round"])
    before = accuracy(evaluate, model)
    model.zero_grad()  # a round that is resumed has no gradients either
    way.train(model, train)
    model.zero_grad()
    after = accuracy(evaluate, model)
    left = nonzero_parameters(model)
    seconds = round(time.perf_counter() - began, 2)
    made = Round(number, left, left / start, before, after, level == 0, seconds)
    store.save(name, model, {"round": asdict(made)})
    return made


def as_way(target: Target | Way, scope: str, layers: Layers, biases: bool) -> Way:
    if not isinstance(target, (int, float, Mapping)):
        if not hasattr(target, "reduce"):
            raise SchemeError(
                f"target={target!r} is no target", try_=("target=0.1", "target=10_000")
            )
        return copy.deepcopy(target)  # what it keeps between rounds is of one model
    if isinstance(target, Mapping):
        for name, share in target.items():
            check_share(share, f"share of {name}")
    elif not is_count(target):
        check_share(target, "target")
    return Magnitude(target, scope, layers, biases)


def check_rounds(rounds: int, settle: int) -> None:
    if not isinstance(rounds, int) or rounds < 1:
        raise SchemeError(f"rounds={rounds!r} is not a number of rounds", try_="rounds=5")
    check_counts(settle=settle)


def check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 0:
            raise SchemeError(f"{name}={count!r} is not a number from 0 on", try_=f"{name}=0")


def accuracy(evaluate: Evaluate, model: nn.Module) -> float:
    found = float(evaluate(model))
    if not np.isfinite(found):
        raise DataError(f"evaluate gave {found}", why="training diverged, or it judged no sample")
    return found


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def nonzero_parameters(model: nn.Module) -> int:
    return sum(int(p.detach().count_nonzero()) for p in model.parameters())


def become(model: nn.Module, other: nn.Module) -> None:
    """Make the model what the other is: its numbers, or all of it where shapes differ."""
    own, new = model.state_dict(), other.state_dict()
    if {n: t.shape for n, t in own.items()} == {n: t.shape for n, t in new.items()}:
        training = model.training
        set_arrays(model, arrays_of(other))
        model.train(training)
    else:
        model.__dict__.clear()
        model.__dict__.update(other.__dict__)
