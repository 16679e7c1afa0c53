"""Cheap substitutes for contributions, from gradients alone.

fisher     the sum of squared gradients over batches: how much a parameter matters to the loss
gradient   the squared norm of the mean gradient: how fast the loss falls, to first order
"""

from __future__ import annotations

import numpy as np

from ...scheme import head
from .candidate import RATIOS, Candidate, Contributions, Part
from .trials import Trial

PROXIES = ("fisher", "gradient")
BATCHES = 32


def by_gradients(trial: Trial) -> dict[str, Contributions]:
    """Contributions by each proxy. A weight's part has the gradients of its channels."""
    space = trial.space
    parameters, top = trial.bench.parameters, {p.name for p in head(trial.bench.parameters)}
    layer = {p.name: p.layer for p in parameters if 0 <= p.layer < space.depth}
    layer = {name: number for name, number in layer.items() if name not in top}
    names = {p.name for p in parameters if p.kind == "weight"} & layer.keys()
    biases = {proxy: np.zeros(space.depth + 1) for proxy in PROXIES}
    weights: dict[str, dict[Part, float]] = {proxy: {} for proxy in PROXIES}
    for ratio in RATIOS:
        parts = tuple((i, ratio) for i, ratios in space.ratios.items() if ratio in ratios)
        for name, sums in gradients(trial, Candidate(space.depth, parts)).items():
            for proxy, total in zip(PROXIES, sums, strict=True):
                if name in names:
                    weights[proxy][layer[name], ratio] = total
                elif name in layer and ratio == RATIOS[0]:
                    biases[proxy][space.reach(layer[name])] += total
    return {
        proxy: Contributions(
            proxy,
            tuple(map(float, np.cumsum(biases[proxy]))),
            dict(sorted(weights[proxy].items())),
            space.layers,
        )
        for proxy in PROXIES
    }


def gradients(trial: Trial, candidate: Candidate) -> dict[str, tuple[float, float]]:
    """Of every trained parameter over some batches: the mean square, and the square of the mean."""
    trainer = trial.bench.trainer(candidate.scheme(trial.bench.parameters), accumulate=True)
    trainer.load_state_dict(trial.head)
    order = np.random.default_rng(trial.settings.seed).permutation(len(trial.train))
    means: dict[str, np.ndarray] = {}
    squares: dict[str, float] = {}
    some = list(trial.train.batches(order[: BATCHES * trial.bench.batch], trial.bench.batch))
    for x, y in some:
        trainer.gradients(x, y)
        for name, gradient in trainer.collected(real=True).items():
            means[name] = means.get(name, 0.0) + gradient / len(some)
            squares[name] = squares.get(name, 0.0) + float((gradient**2).sum()) / len(some)
        trainer.apply(lr=0.0, scale=0.0)
    return {name: (squares[name], float((mean**2).sum())) for name, mean in means.items()}
