"""What is believed of candidates of many parts, after some of them were tried.

In company a part gains less than alone, or something else, and where too much trains at once
everything gets worse. So what an analysis has told of single parts is where this begins, and every
candidate that is tried whole changes it. Accuracy is what is asked for. The loss is looked at as
well, as it is surer: it tells of the parts, but what lowers the loss need not raise the accuracy,
so each of them has worths, and a bend, of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir import Array
from ..scheme.contribution import Candidate, Contributions, Outcome
from .belief import Belief, features, learned, likelihood

LEFT = 0.4  # of its gain alone is left of a part among others, give or take BEND of it
BEND = 0.4  # and of large sums less: too much that trains gets into its own way
OTHERWISE = (0.05, 0.1, 0.2, 0.4)  # of what parts were thought to be worth: what else they are
OWN = (0.1, 0.25, 0.5)  # of the noise: how far a candidate is from the sum of its parts
UNSURE = 2.0  # times the noise of an analysis: that of a candidate on one split

Seen = Sequence[Mapping[Candidate, Outcome]]  # on each split of the data


@dataclass(frozen=True)
class Company:
    """The worth of parts among others, in points of accuracy, and how large sums of it bend."""

    belief: Belief
    largest: float  # sum that was tried
    mean: Array  # [2 * layers + 2]
    covariance: Array
    own: Mapping[Candidate, float]  # what a candidate is better than its parts
    likely: float

    @classmethod
    def of(cls, belief: Belief, seen: Seen = ()) -> Company:
        """After candidates were tried on some splits each, the head alone on all of them."""
        every = (cls.if_(belief, seen, *shares) for shares in itertools.product(OTHERWISE, OWN))
        return max(every, key=lambda company: company.likely)

    @classmethod
    def if_(cls, belief: Belief, seen: Seen, otherwise: float, own: float) -> Company:
        """If parts are so much else in company, and candidates so far from their sum.

        One set of worths for each measure, accuracy first; what single parts told is common to all.
        """
        tried = [(c, turn) for turn, outcomes in enumerate(seen) for c in outcomes]
        kinds = belief.measure.each
        values = [np.array([v for o in seen for v in kind.values(o)]) for kind in kinds]
        noises = [splits_apart(tried, v) or UNSURE * belief.noise for v in values]
        parts = features([c for c, _ in tried], belief.biased)
        sums = parts @ belief.mean
        largest = float(np.abs(sums).max(initial=0.0)) or 1.0
        told = np.column_stack([parts, sums, sums**2 / largest])
        mean = np.tile(np.append(LEFT * belief.mean, [0.0, 0.0]), len(kinds))
        common, apart = np.zeros((2, *[len(belief.mean) + 2] * 2))
        common[:-2, :-2] = LEFT**2 * belief.covariance
        apart[:-2, :-2] = otherwise**2 * belief.before
        apart[-2:, -2:] = BEND**2 * np.eye(2)
        each = np.eye(len(kinds))
        covariance = np.kron(np.ones_like(each), common) + np.kron(each, apart)
        same = np.array([[a == b for b, _ in tried] for a, _ in tried], float)
        split = np.array([[i == j for _, j in tried] for _, i in tried], float)
        same, split = (m.reshape(len(tried), len(tried)) for m in (same, split))
        far = [float(np.abs(sums).max(initial=0.0) + np.abs(v).max(initial=0.0)) + noise
               for v, noise in zip(values, noises, strict=True)]  # fmt: skip
        noise = np.diag(np.square(noises))
        chance = np.kron(noise, np.eye(len(tried)) + own**2 * same)
        chance += np.kron(np.diag(np.square(far)), split)  # one may be easier than the others
        whole, all_values = np.kron(each, told), np.concatenate(values)
        likely = likelihood(all_values - whole @ mean, whole @ covariance @ whole.T + chance)
        mean, covariance, pull = learned(mean, covariance, whole, all_values, chance)
        more = (own * noises[0]) ** 2 * (same @ pull[: len(tried)])
        first = slice(0, told.shape[1])
        better = {c: float(m) for (c, _), m in zip(tried, more, strict=True)}
        return cls(belief, largest, mean[first], covariance[first, first], better, likely)

    def worth(self, candidate: Candidate) -> float:
        """In points over the head alone."""
        parts = features([candidate], self.belief.biased)[0]
        total = parts @ self.belief.mean
        told = np.append(parts, [total, total**2 / self.largest])
        return float(told @ self.mean) + self.own.get(candidate, 0.0)

    def expected(self, around: Candidate) -> Contributions:
        """What parts gain in the company of this candidate's."""
        return self._gains(self.mean, around)

    def drawn(self, random: np.random.Generator, around: Candidate) -> Contributions:
        """Gains that are as likely, as far as anybody knows."""
        small = 1e-9 * float(np.trace(self.covariance)) * np.eye(len(self.mean))  # of rounding
        root = np.linalg.cholesky(self.covariance + small)
        return self._gains(self.mean + root @ random.normal(size=len(self.mean)), around)

    def _gains(self, worth: Array, around: Candidate) -> Contributions:
        """By the slope of the bend there."""
        belief = self.belief
        total = float(features([around], belief.biased)[0] @ belief.mean)
        slope = worth[-2] + 2 * worth[-1] * total / self.largest
        return belief.as_gains(worth[:-2] + slope * belief.mean)


def splits_apart(tried: Sequence[tuple[Candidate, int]], values: Array) -> float:
    """The noise of an outcome, from those of one candidate on several splits; 0 if unknown.

    By the median, so that one that failed once does not make all others look unsure.
    """
    free = len(tried) - len({c for c, _ in tried}) - len({turn for _, turn in tried}) + 1
    if free <= 0 or not tried:
        return 0.0
    left = np.array(values)
    for group in (1, 0):  # less what a split is easier than others, then what a candidate is better
        for key in {pair[group] for pair in tried}:
            own = [i for i, pair in enumerate(tried) if pair[group] == key]
            left[own] -= np.median(left[own])
    return 1.4826 * float(np.median(np.abs(left))) * math.sqrt(len(tried) / free)
