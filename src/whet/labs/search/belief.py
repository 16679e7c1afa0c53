"""What is believed of candidates that nobody has tried, after all that was tried.

A candidate is worth what its biases and its parts of weights are worth, added up. A layer is worth
about what others are that have its name in their blocks, near ones above all, and a part of it the
more the larger it is; so hundreds of noisy outcomes say more together than each says of itself.
This is a Gaussian process with a linear kernel (Rasmussen and Williams 2006, chapter 2): what is
believed has a mean and a covariance, and gains that are as likely can be drawn from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...ir import Array
from ...scheme.contribution import RATIOS, Candidate, Contributions, Outcome
from ...scheme.parameters import block_of
from .lesson import HOPELESS

POWER = 0.75  # of a fraction: a layer's worth grows with it, the first channels give a little more
NEAR = 1 / 6  # of the depth: as far as layers are near each other
REASONS = {"biases": 1.0, "name": 0.1, "near": 0.1, "layer": 0.1, "noise": 0.1}  # to begin with
SAY = 2 / 3  # of the loss, if accuracy counts too
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # of outcomes' mean square, for one reason


@dataclass(frozen=True)
class Measure:
    """How good an outcome is, in points of accuracy: by that and by the loss, or by one of them.

    Accuracy is what counts, the loss is surer: it has two thirds of the say, and counts as many
    points as come with it. If none do it has no say, and without classes it is all there is.
    """

    accuracy: float
    loss: float

    @classmethod
    def of(cls, outcomes: Mapping[Candidate, Outcome]) -> Measure:
        """By outcomes that belong together, that of the head alone among them."""
        known = [o for o in outcomes.values() if not o.diverged]
        head = outcomes[Candidate()]
        points, losses = (np.array([getattr(o, w) for o in known]) for w in ("accuracy", "loss"))
        if np.isnan(points).any():
            return cls(0.0, 1.0)
        if not head.diverged:
            fine = (points > head.accuracy - HOPELESS) & (-losses >= lowest(-head.loss, -losses))
            points, losses = points[fine], losses[fine]
        apart = losses - losses.mean() if losses.size else losses
        slope = -float(apart @ points / (apart @ apart)) if apart.any() else 0.0
        return cls(1 - SAY, SAY * slope) if slope > 0 else cls(1.0, 0.0)

    @property
    def each(self) -> list[Measure]:
        """The measures that this one is made of, in points as well."""
        both = self.accuracy > 0 and self.loss > 0
        return [Measure(1.0, 0.0), Measure(0.0, self.loss / SAY)] if both else [self]

    def worth(self, outcome: Outcome) -> float:
        points = self.accuracy * outcome.accuracy if self.accuracy else 0.0
        return points - self.loss * outcome.loss

    def values(self, outcomes: Mapping[Candidate, Outcome]) -> Array:
        """Over the head alone; of failures it is enough to know that they are."""
        known = np.array([self.worth(o) for o in outcomes.values() if not o.diverged])
        if not known.size:
            return np.zeros(len(outcomes))
        head = outcomes[Candidate()]
        start = float(known.min()) if head.diverged else self.worth(head)
        low = lowest(start, known)
        worth = [low if o.diverged else max(low, self.worth(o)) for o in outcomes.values()]
        return np.array(worth) - start


def lowest(start: float, values: Array) -> float:
    """Twice as far below the start as the best is above, or as half of them are below."""
    return start - 2 * max(float(values.max()) - start, start - float(np.median(values)))


@dataclass(frozen=True)
class Belief:
    """The worth of each layer's bias and of its whole weight, in points: the last layer last."""

    mean: Array  # [2 * layers]
    covariance: Array
    before: Array  # that of the time when nothing was known
    biased: Array  # [layers]: 1 for layers that have a bias, 0 for others
    measure: Measure
    noise: float  # of one outcome
    gains: Contributions  # as they were measured

    @classmethod
    def of(cls, gains: Contributions) -> Belief:
        """After an analysis."""
        measure = Measure.of(gains.outcomes)
        over = dict(zip(gains.outcomes, measure.values(gains.outcomes), strict=True))
        del over[Candidate()]  # what all others are over
        values, biased = np.array(list(over.values())), layers_with_biases(gains)
        told = features(list(over), biased)
        vary = float(np.mean(values**2)) if values.any() else 1.0
        reasons = {k: vary * v for k, v in resemblance(gains.layers, len(biased)).items()}
        spreads = {reason: told @ every @ told.T for reason, every in reasons.items()}
        spreads["noise"] = vary * (np.eye(len(values)) + 1.0)  # its own, and that of the head alone
        share = likeliest(values, spreads)
        before = sum((share[k] * v for k, v in reasons.items()), np.zeros_like(reasons["name"]))
        chance = share["noise"] * spreads["noise"]
        mean, covariance, _ = learned(np.zeros(len(before)), before, told, values, chance)
        noise = math.sqrt(share["noise"] * vary)
        return cls(mean, covariance, before, biased, measure, noise, gains)

    @property
    def expected(self) -> Contributions:
        return self.as_gains(self.mean)

    def as_gains(self, worth: Array) -> Contributions:
        biases, weights = np.split(worth, 2)
        last_ones = np.cumsum((biases * self.biased)[::-1])
        parts = {
            (layer, ratio): float(weights[layer] * ratio**POWER)
            for layer in sorted({layer for layer, _ in self.gains.weights})
            for ratio in RATIOS
        }
        return replace(self.gains, biases=(0.0, *map(float, last_ones)), weights=parts)


def layers_with_biases(gains: Contributions) -> Array:
    """Those whose bias changes anything: without one, candidates are twins and share an outcome."""
    last_ones = [gains.outcomes[Candidate(k)] for k in range(len(gains.biases))]
    return np.array([float(last_ones[k] != last_ones[k - 1])
                     for k in range(len(last_ones) - 1, 0, -1)])  # fmt: skip


def features(candidates: Sequence[Candidate], biased: Array) -> Array:
    """What of each candidate trains: biases, then weights."""
    layers = len(biased)
    rows = np.zeros((len(candidates), 2 * layers))
    for row, candidate in zip(rows, candidates, strict=True):
        row[layers - candidate.biases : layers] = biased[layers - candidate.biases :]
        for layer, ratio in candidate.weights:
            row[layers + layer] = ratio**POWER
    return rows


def resemblance(names: Sequence[str], layers: int) -> dict[str, Array]:
    """How layers go together before anything is known, by every reason."""
    own = [name.removeprefix(block_of(name)) for name in names] or [""] * layers
    same = np.array([[a == b for b in own[:layers]] for a in own[:layers]], float)
    same = same.reshape(layers, layers)
    place = np.arange(layers) / max(NEAR * layers, 1.0)
    near = np.exp(-0.5 * (place[:, None] - place) ** 2)
    none = np.zeros((layers, layers))
    each = np.eye(layers)
    return {
        "biases": np.block([[each / max(layers, 1), none], [none, none]]),
        "name": np.block([[none, none], [none, same]]),
        "near": np.block([[none, none], [none, same * near]]),
        "layer": np.block([[none, none], [none, each]]),
    }


def likeliest(values: Array, spreads: Mapping[str, Array]) -> dict[str, float]:
    """How much each reason explains: one after the other is chosen anew, until none changes."""

    def likely(share: Mapping[str, float]) -> float:
        every = sum((share[k] * v for k, v in spreads.items()), np.zeros_like(spreads["noise"]))
        return likelihood(values, every)

    share, best = dict(REASONS), -math.inf
    while (now := likely(share)) > best:
        best = now
        for reason in REASONS:
            share = max(({**share, reason: s} for s in SHARES), key=likely)
    return share


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
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, values)
    return float(-0.5 * white @ white - np.log(np.diag(root)).sum())
