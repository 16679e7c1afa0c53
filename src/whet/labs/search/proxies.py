"""Cheap guesses at contributions, to be compared with what fine-tuning finds.

fisher          the sum of squared gradients over batches: how much a parameter matters to the loss
gradient        the squared norm of the mean gradient: how fast the loss falls, to first order
gradient/byte   the same for each byte that trains
one-batch       how far the loss of one batch falls in a few steps on that batch

The first three come from one program in which everything trains, in the units of the real numbers
that integers stand for. The last needs a program for each candidate, but next to no training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import NotFinite
from ...frontend.model import Model
from ...ir import Array
from ...pipeline import Options, assemble
from ...runtime import Trainer
from ...scheme import Parameter, parameters_of
from ...scheme.contribution import (
    DIVERGED,
    Candidate,
    Contributions,
    Outcome,
    choices,
    depth,
    names_of,
    reach,
    sunk,
)
from .analysis import Trials, one_weight
from .lesson import Bench, Pupil
from .planner import Part

PROXIES = ("fisher", "gradient", "gradient/byte", "one-batch")
BATCHES = 32
STEPS = 5  # on one batch


def guess(trials: Trials, proxy: str) -> Contributions:
    """Contributions by one of the PROXIES."""
    if proxy == "one-batch":
        return one_batch(trials)
    return by_gradients(trials.bench)[proxy]


def by_gradients(bench: Bench) -> dict[str, Contributions]:
    """The three proxies that gradients give."""
    began = time.perf_counter()
    parameters = parameters_of(bench.model.training.graph)
    trainer, mean, squares = collect(bench, parameters)
    axes = channel_axes(bench.model, parameters)
    norm = {name: gradient**2 for name, gradient in mean.items()}
    size = {
        name: np.full(gradient.shape, trainer.program.tensors[name].type.dtype.size)
        for name, gradient in mean.items()
    }

    def both(values: Mapping[str, Array]) -> tuple[list[float], dict[Part, float]]:
        return prefix_sums(values, parameters), part_sums(values, parameters, axes)

    fisher, gradient, total = both(squares), both(norm), both(size)
    dense = (
        [g / max(n, 1) for g, n in zip(gradient[0], total[0], strict=True)],
        {part: gradient[1][part] / max(total[1][part], 1) for part in gradient[1]},
    )
    seconds = time.perf_counter() - began
    named = {"fisher": fisher, "gradient": gradient, "gradient/byte": dense}
    return {
        name: Contributions(name, tuple(biases), weights, names_of(parameters), seconds)
        for name, (biases, weights) in named.items()
    }


def collect(
    bench: Bench, parameters: Sequence[Parameter]
) -> tuple[Trainer, dict[str, Array], dict[str, Array]]:
    """Mean gradients and mean squares of them over some batches, of everything at once."""
    everything = Candidate(depth(parameters), tuple((i, 1.0) for i in choices(parameters)))
    options = Options(accumulate=True, grow=False)
    program = assemble(bench.model, everything.scheme(parameters), options)
    trainer: Trainer = program.load(threads=1)
    trainer.load_state_dict(bench.head)
    units = program.integer_rules.units
    scales = {n: trainer._step_sizes(n) for n in units if n in program.storage.params}
    order = np.random.default_rng(bench.lesson.seed).permutation(len(bench.train))
    mean: dict[str, Array] = {}
    squares: dict[str, Array] = {}
    count = 0
    for x, y in bench.train.batches(order[: BATCHES * bench.batch], bench.batch):
        trainer.gradients(x, y)
        for name, gradient in trainer.collected().items():
            real = gradient / scales[name] if name in scales else gradient
            mean[name] = mean.get(name, 0.0) + real
            squares[name] = squares.get(name, 0.0) + real**2
        trainer.apply(lr=0.0, scale=0.0)
        count += 1
    return (
        trainer,
        {name: total / count for name, total in mean.items()},
        {name: total / count for name, total in squares.items()},
    )


def channel_axes(model: Model, parameters: Sequence[Parameter]) -> dict[str, int]:
    """Which of PyTorch's axes of a weight its input channels run along, if it has several."""
    parts = tuple((i, ratios[0]) for i, ratios in choices(parameters).items() if ratios[0] < 1)
    scheme = Candidate(depth(parameters), parts).scheme(parameters)
    program = assemble(model, scheme, Options(grow=False))
    return {
        part.parameter: program.tensors[part.parameter].order[part.axis]
        for part in program.parts.values()
    }


def prefix_sums(values: Mapping[str, Array], parameters: Sequence[Parameter]) -> list[float]:
    """Over the last k biases, for each k."""
    by_reach = {
        p.name: reach(parameters, p.layer)
        for p in parameters
        if p.kind.endswith("bias") and p.name in values and 0 <= p.layer < depth(parameters)
    }
    return [
        float(sum(values[name].sum() for name, far in by_reach.items() if far <= k))
        for k in range(depth(parameters) + 1)
    ]


def part_sums(
    values: Mapping[str, Array], parameters: Sequence[Parameter], axes: Mapping[str, int]
) -> dict[Part, float]:
    """Over the first channels of each weight, for each fraction of them."""
    found: dict[Part, float] = {}
    for p in parameters:
        if p.kind != "weight" or p.name not in values:
            continue
        for ratio in choices(parameters).get(p.layer, ()):
            taken = values[p.name]
            if ratio < 1:
                count = max(1, round(ratio * p.channels))
                taken = np.moveaxis(taken, axes[p.name], 0)[:count]
            found[p.layer, ratio] = float(taken.sum())
    return found


@dataclass(frozen=True)
class OneBatch:
    """A few steps of a candidate on one batch, less than an epoch: how far does its loss rise?"""

    bench: Bench

    def run(self, candidate: Candidate) -> Outcome:
        pupil = Pupil(self.bench, candidate)
        ((x, y),) = pupil.train.batches(np.arange(self.bench.batch), self.bench.batch)
        try:
            losses = [pupil.trainer.step(x, y, lr=self.bench.rate) for _ in range(STEPS + 1)]
        except NotFinite:
            return Outcome(math.nan, DIVERGED, 0)
        return Outcome(math.nan, losses[-1] - losses[0], 0)


def one_batch(trials: Trials) -> Contributions:
    """What was tried before is in the store, as no epochs long."""
    began, bench = time.perf_counter(), trials.bench
    parameters = parameters_of(bench.model.training.graph)
    order = np.random.default_rng(bench.lesson.seed).permutation(len(bench.train))
    few = bench.train.take(np.sort(order[: bench.batch]))
    small = OneBatch(replace(bench, train=few, judge=few, name=""))
    wanted = list(every_candidate(parameters))
    rises = trials.tried(small, wanted, "one batch", 0)
    falls = dict(zip(rises, sunk([-o.loss for o in rises.values()]), strict=True))
    base = falls[Candidate()]
    return Contributions(
        "one-batch",
        tuple(falls[Candidate(k)] - base for k in range(depth(parameters) + 1)),
        {c.weights[0]: falls[c] - falls[Candidate(c.biases)] for c in wanted if c.weights},
        names_of(parameters),
        time.perf_counter() - began,
    )


def every_candidate(parameters: Sequence[Parameter]) -> Iterator[Candidate]:
    """All with biases alone, and all with one part of a weight."""
    yield from (Candidate(k) for k in range(depth(parameters) + 1))
    for layer, ratios in choices(parameters).items():
        yield from (one_weight(parameters, layer, ratio) for ratio in ratios)


def agreement(proxy: Contributions, real: Contributions) -> tuple[float, float]:
    """Spearman's rank correlation with what fine-tuning found: of biases, and of weights.

    Over what both know.
    """
    parts = sorted(proxy.weights.keys() & real.weights.keys())
    return (
        spearman(proxy.biases[1:], real.biases[1:]),
        spearman([proxy.weights[p] for p in parts], [real.weights[p] for p in parts]),
    )


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    from scipy.stats import spearmanr

    if len(a) < 3 or len(set(a)) < 2 or len(set(b)) < 2:
        return float("nan")
    return float(spearmanr(a, b).statistic)
