"""What is believed of candidates that nobody has tried, after all that was tried.

A candidate is worth what its biases and its parts of weights are worth, added up. A layer is worth
about what others are that have its name in their blocks, near ones above all, and a part of it the
more the larger it is; so hundreds of noisy outcomes say more together than each says of itself.
This is a Gaussian process with a linear kernel (Rasmussen and Williams 2006, chapter 2): what is
believed has a mean and a covariance, and gains that are as likely can be drawn from it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..ir import Array
from ..scheme import Parameter
from ..scheme.contribution import RATIOS, Candidate, Contributions, Outcome
from .lesson import HOPELESS

POWER = 0.75  # of a fraction: a layer's worth grows with it, the first channels give a little more
NEAR = 1 / 6  # of the depth: as far as layers are near each other
SHARES = {  # of how much outcomes vary: what one reason may explain, the likeliest is taken
    "biases": (1.0, 3.0), "name": (0.1, 0.3), "near": (0.1, 0.3, 1.0), "layer": (0.03, 0.1, 0.3),
    "noise": (1.0, 1.4),
}  # fmt: skip
COMPANY = 0.4  # of its gain alone is left of a part among others, give or take BEND of it
BEND = 0.4  # and of large sums less: too much that trains gets into its own way
OWN = 0.25  # of the noise of an outcome: how far a candidate is from the sum of its parts


@dataclass(frozen=True)
class Measure:
    """How good an outcome is, in points of accuracy: by that and by the loss, or by the loss alone.

    Accuracy is what counts, the loss is surer: it has two thirds of the say, and counts as many
    points as come with it.
    """

    accuracy: float
    loss: float

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Measure:
        known = [o for o in outcomes if not o.diverged]
        points, losses = (np.array([getattr(o, w) for o in known]) for w in ("accuracy", "loss"))
        if np.isnan(points).any():
            return cls(0.0, 1.0)
        fine = points > points.max(initial=0.0) - HOPELESS
        points, losses = points[fine], losses[fine]
        apart = losses - losses.mean() if losses.size else losses
        slope = -float(apart @ points / (apart @ apart)) if apart.any() else 0.0
        return cls(1 / 3, 2 / 3 * slope) if slope > 0 else cls(1.0, 0.0)

    def worth(self, outcome: Outcome) -> float:
        points = self.accuracy * outcome.accuracy if self.accuracy else 0.0
        return points - self.loss * outcome.loss

    def values(self, outcomes: Mapping[Candidate, Outcome]) -> Array:
        """Over the head alone, and no further below it than the best is above.

        Or failures would outweigh all else, of which it is enough to know that they are.
        """
        known = [self.worth(o) for o in outcomes.values() if not o.diverged]
        if not known:
            return np.zeros(len(outcomes))
        head = outcomes[Candidate()]
        start = min(known) if head.diverged else self.worth(head)
        low = 2 * start - max(known)
        worth = [low if o.diverged else max(low, self.worth(o)) for o in outcomes.values()]
        return np.array(worth) - start


@dataclass(frozen=True)
class Belief:
    """The worth of each layer's bias and of its whole weight, in points: the last layer last."""

    mean: Array  # [2 * layers]
    covariance: Array
    measure: Measure
    noise: float  # of one outcome
    gains: Contributions  # as they were measured

    @property
    def layers(self) -> int:
        return len(self.mean) // 2

    @classmethod
    def of(cls, gains: Contributions) -> Belief:
        """After an analysis."""
        candidates = list(gains.outcomes)
        measure = Measure.of(gains.outcomes.values())
        values = measure.values(gains.outcomes)
        told = features(candidates, len(gains.biases) - 1)
        names = gains.layers or ("",) * len(gains.biases)
        noise = neighbours_apart(candidates, values) or float(values.std()) or 1.0
        likely = -math.inf
        for shares in itertools.product(*SHARES.values()):
            share = dict(zip(SHARES, shares, strict=True))
            before = resemblance(names, share) * float(values.var() or 1.0)
            own = noise * share["noise"]
            chance = own**2 * (np.eye(len(values)) + 1.0)  # its own, and that of the head alone
            if (now := likelihood(values, told @ before @ told.T + chance)) > likely:
                likely, best = now, (before, own, chance)
        before, own, chance = best
        mean, covariance, _ = learned(np.zeros(len(before)), before, told, values, chance)
        return cls(mean, covariance, measure, own, gains)

    @property
    def expected(self) -> Contributions:
        return self.as_gains(self.mean)

    def drawn(self, random: np.random.Generator) -> Contributions:
        """Gains that are as likely, as far as anybody knows."""
        small = 1e-9 * float(np.trace(self.covariance)) * np.eye(len(self.mean))  # of rounding
        root = np.linalg.cholesky(self.covariance + small)
        return self.as_gains(self.mean + root @ random.normal(size=len(self.mean)))

    def as_gains(self, worth: Array) -> Contributions:
        biases = np.concatenate([[0.0], np.cumsum(worth[: self.layers][::-1])])
        weights = {
            (layer, ratio): float(worth[self.layers + layer] * ratio**POWER)
            for layer in sorted({layer for layer, _ in self.gains.weights})
            for ratio in RATIOS
        }
        return replace(self.gains, biases=tuple(map(float, biases)), weights=weights)

    def in_company(self, seen: Sequence[Mapping[Candidate, Outcome]]) -> dict[Candidate, float]:
        """What candidates of many parts are worth after they were tried, on some splits each.

        Their own outcomes are noisy too: they change what is believed of their parts, and a little
        more what is believed of themselves.
        """
        tried = [(c, turn) for turn, outcomes in enumerate(seen) for c in outcomes]
        candidates = [c for c, _ in tried]
        values = np.concatenate([self.measure.values(outcomes) for outcomes in seen])
        told = features(candidates, self.layers)
        noise = splits_apart(tried, values) or 2 * self.noise
        same = np.array([[a == b for b in candidates] for a in candidates], float)
        split = np.array([[i == j for _, j in tried] for _, i in tried], float)
        far = float(np.abs(told @ self.mean).max()) + float(np.abs(values).max()) + noise
        chance = (OWN * noise) ** 2 * same + noise**2 * np.eye(len(tried)) + far**2 * split
        sums = told @ self.mean
        told = np.column_stack([told, sums, sums**2 / (np.abs(sums).max() or 1.0)])
        mean = np.append(COMPANY * self.mean, [0.0, 0.0])
        covariance = np.diag([0.0] * len(self.mean) + [BEND**2] * 2)
        covariance[:-2, :-2] = COMPANY**2 * self.covariance
        mean, _, pull = learned(mean, covariance, told, values, chance)
        own = (OWN * noise) ** 2 * (same @ pull)
        return {
            c: float(row @ mean + rest) for c, row, rest in zip(candidates, told, own, strict=True)
        }


def features(candidates: Sequence[Candidate], layers: int) -> Array:
    """What of each candidate trains: biases, then weights."""
    rows = np.zeros((len(candidates), 2 * layers))
    for row, candidate in zip(rows, candidates, strict=True):
        row[layers - candidate.biases : layers] = 1.0
        for layer, ratio in candidate.weights:
            row[layers + layer] = ratio**POWER
    return rows


def resemblance(names: Sequence[str], share: Mapping[str, float]) -> Array:
    """How layers go together, before anything is known: by name, more so near each other."""
    layers = len(names) - 1  # the last one is the head
    own = [name.removeprefix(Parameter(name, "weight", 0, 0).block) for name in names[:layers]]
    same = np.array([[a == b for b in own] for a in own], float)
    place = np.arange(layers) / max(NEAR * layers, 1.0)
    near = np.exp(-0.5 * (place[:, None] - place) ** 2)
    found = np.zeros((2 * layers, 2 * layers))
    found[:layers, :layers] = share["biases"] / max(layers, 1) * np.eye(layers)
    found[layers:, layers:] = same * (share["name"] + share["near"] * near) + share[
        "layer"
    ] * np.eye(layers)
    return found


def learned(
    mean: Array, covariance: Array, told: Array, values: Array, chance: Array
) -> tuple[Array, Array, Array]:
    """Mean and covariance after values were seen, and how hard each pulls at what goes with it."""
    every = told @ covariance @ told.T + chance
    pull = np.linalg.solve(every, values - told @ mean)
    towards = np.linalg.solve(every, told @ covariance)
    return mean + covariance @ told.T @ pull, covariance - towards.T @ told @ covariance, pull


def likelihood(values: Array, covariance: Array) -> float:
    """Its logarithm, but for a constant."""
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return -math.inf
    white = np.linalg.solve(root, values)
    return float(-0.5 * white @ white - np.log(np.diag(root)).sum())


def neighbours_apart(candidates: Sequence[Candidate], values: Array) -> float:
    """The noise of an outcome: one bias more or less hardly changes anything else."""
    by_count = {c.biases: v for c, v in zip(candidates, values, strict=True) if not c.weights}
    steps = np.abs(np.diff([by_count[k] for k in sorted(by_count)]))
    steps = steps[steps > 0]  # a layer without a bias changes nothing
    return float(np.median(steps)) if steps.size else 0.0


def splits_apart(tried: Sequence[tuple[Candidate, int]], values: Array) -> float:
    """The noise of an outcome, from those of one candidate on several splits; 0 if unknown."""
    left = np.array(values)
    for group in (1, 0):  # less what a split is easier than others, then what a candidate is better
        for key in {pair[group] for pair in tried}:
            own = [i for i, pair in enumerate(tried) if pair[group] == key]
            left[own] -= left[own].mean()
    free = len(tried) - len({c for c, _ in tried}) - len({turn for _, turn in tried}) + 1
    return math.sqrt(float(left @ left) / free) if free > 0 else 0.0
