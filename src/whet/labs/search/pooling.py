"""Pooled gains: what all trials together say about each bias and each weight.

A single gain is noisy, on a few hundred validation samples by half a point or more. But layers with
the same name within their blocks gain about the same, near ones above all, and a part of a weight
gains more the larger it is. So all trials are fitted together, by Bayesian linear regression with a
Gaussian prior (Rasmussen and Williams 2006, chapter 2): the gain of a candidate is the sum of those
of its biases and weights, like layers are correlated beforehand, and the variances are those that
maximise the marginal likelihood.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...scheme import block_of
from ..common.validate import Outcome
from .candidate import HEAD, RATIOS, Candidate, Contributions

Array = np.ndarray
POWER = 0.75  # a part's gain is the whole's times its fraction to this power
NEAR = 1 / 6  # of the depth: the distance over which layers of one name are alike
GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # of variances, relative to the data's
START = {"biases": 1.0, "alike": 0.1, "layer": 0.1, "noise": 0.1}
FAILED_BELOW = 10.0  # points of accuracy below the head alone at which a trial is a failure
LOSS_SHARE = 0.5  # of the score


@dataclass(frozen=True)
class Score:
    """An outcome as one number, in points of accuracy: `accuracy` * accuracy - `loss` * loss.

    Accuracy is what counts, but loss is less noisy. So the score is a weighted mean of both, with
    the loss converted to points by regression of accuracy on loss over the given outcomes.
    """

    accuracy: float
    loss: float

    @classmethod
    def of(cls, outcomes: Mapping[Candidate, Outcome], share: float = LOSS_SHARE) -> Score:
        """With this weight of the loss; the outcomes include that of the head alone."""
        known = [o for c, o in outcomes.items() if not failed(o, outcomes[HEAD])]
        points = np.array([o.accuracy for o in known])
        losses = np.array([o.loss for o in known])
        if np.isnan([o.accuracy for o in outcomes.values()]).any():
            return cls(0.0, 1.0)  # there are no classes
        centred = losses - losses.mean() if known else losses
        slope = -float(centred @ points / (centred @ centred)) if centred.any() else 0.0
        return cls(1 - share, share * slope) if slope > 0 else cls(1.0, 0.0)

    def __call__(self, outcome: Outcome) -> float:
        points = self.accuracy * outcome.accuracy if self.accuracy else 0.0
        return points - (self.loss * outcome.loss if self.loss else 0.0)

    def gains(self, outcomes: Mapping[Candidate, Outcome]) -> Array:
        """Scores above that of the head; failures count as little below it as tells them apart."""
        head = outcomes[HEAD]
        known = [self(o) for o in outcomes.values() if not o.diverged] or [0.0]
        base = min(known) if head.diverged else self(head)
        gains = np.array([-math.inf if o.diverged else self(o) - base for o in outcomes.values()])
        floor = -2 * max(float(gains.max()), -float(np.median(np.array(known) - base)), 0.0)
        return np.maximum(gains, floor)


def failed(outcome: Outcome, head: Outcome) -> bool:
    """Diverged, or far worse than the head alone."""
    worse = not head.diverged and outcome.loss - head.loss > abs(head.loss)
    return outcome.diverged or outcome.accuracy < head.accuracy - FAILED_BELOW or worse


@dataclass(frozen=True)
class Pooled:
    """The posterior of the gain of each layer's bias, and of its whole weight."""

    mean: Array  # [2 * layers], the last layer last
    covariance: Array
    biased: Array  # [layers]: 1 where a layer has a bias
    measured: Contributions

    @classmethod
    def of(cls, measured: Contributions, share: float = LOSS_SHARE) -> Pooled:
        outcomes = dict(measured.outcomes)
        gains = dict(zip(outcomes, Score.of(outcomes, share).gains(outcomes), strict=True))
        del gains[HEAD]  # zero by definition
        y = np.array(list(gains.values()))
        biased = has_bias(measured)
        x = features(list(gains), biased)
        variance = float(np.mean(y**2)) if y.any() else 1.0
        priors = {k: variance * v for k, v in kernels(measured.layers, len(biased)).items()}
        spreads = {k: x @ prior @ x.T for k, prior in priors.items()}
        # the noise of each trial, and that of the head alone, which all gains share
        spreads["noise"] = variance * (np.eye(len(y)) + 1.0)
        share_of = fitted(y, spreads)
        prior = sum((share_of[k] * v for k, v in priors.items()), np.zeros_like(priors["layer"]))
        gram = x @ prior @ x.T + share_of["noise"] * spreads["noise"]
        gain = np.linalg.solve(gram, x @ prior).T
        return cls(gain @ y, prior - gain @ x @ prior, biased, measured)

    @property
    def gains(self) -> Contributions:
        return self.as_gains(self.mean)

    def sample(self, random: np.random.Generator) -> Contributions:
        """Gains that are as plausible: a draw from the posterior."""
        return self.as_gains(random.multivariate_normal(self.mean, self.covariance, method="eigh"))

    def as_gains(self, values: Array) -> Contributions:
        biases, weights = np.split(values, 2)
        sums = np.cumsum((biases * self.biased)[::-1])
        parts = {
            (layer, ratio): float(weights[layer] * ratio**POWER)
            for layer in sorted({layer for layer, _ in self.measured.weights})
            for ratio in RATIOS
        }
        return replace(self.measured, biases=(0.0, *map(float, sums)), weights=parts)


def pooled_gains(measured: Contributions) -> Contributions:
    """A proxy has no outcomes to pool."""
    return Pooled.of(measured).gains if measured.outcomes else measured


def has_bias(measured: Contributions) -> Array:
    """Without a bias, two prefixes train the same and share an outcome."""
    outcomes = [measured.outcomes[Candidate(k)] for k in range(len(measured.biases))]
    same = [one == other for one, other in itertools.pairwise(outcomes)]
    return 1.0 - np.array(same[::-1], float)


def features(candidates: Sequence[Candidate], biased: Array) -> Array:
    """How much of each bias and each weight a candidate trains."""
    layers = len(biased)
    rows = np.zeros((len(candidates), 2 * layers))
    for row, candidate in zip(rows, candidates, strict=True):
        row[layers - candidate.biases : layers] = biased[layers - candidate.biases :]
        for layer, ratio in candidate.weights:
            row[layers + layer] = ratio**POWER
    return rows


def kernels(names: Sequence[str], layers: int) -> dict[str, Array]:
    """The parts of the prior covariance, each of unit scale."""
    own = np.array([name.removeprefix(block_of(name)) for name in names] or [""] * layers)[:layers]
    same = 1.0 * (own[:, None] == own)
    place = np.arange(layers) / max(NEAR * layers, 1.0)
    near = np.exp(-0.5 * (place[:, None] - place) ** 2)
    of_biases, of_weights = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    return {
        "biases": np.kron(of_biases, np.eye(layers) / max(layers, 1)),
        "alike": np.kron(of_weights, same * near),
        "layer": np.kron(of_weights, np.eye(layers)),
    }


def fitted(y: Array, spreads: Mapping[str, Array]) -> dict[str, float]:
    """The variances on the grid that maximise the likelihood, by coordinate ascent."""

    def likelihood(shares: Mapping[str, float]) -> float:
        total = sum((shares[k] * v for k, v in spreads.items()), np.zeros_like(spreads["noise"]))
        root = np.linalg.cholesky(total)
        white = np.linalg.solve(root, y)
        return float(-0.5 * white @ white - np.log(np.diag(root)).sum())

    shares, best = dict(START), -math.inf
    while (now := likelihood(shares)) > best:
        best = now
        for name in START:
            shares = max(({**shares, name: value} for value in GRID), key=likelihood)
    return shares
