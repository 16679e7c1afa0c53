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

from ...ir import Array
from ...scheme.contribution import Candidate, Contributions, Outcome
from .belief import Belief, features, learned, likelihood
from .lesson import HOPELESS

LEFT = 0.4  # of its gain alone is left of a part among others, give or take BEND of it
BEND = 0.4  # and of large sums less: too much that trains gets into its own way
OTHERWISE = (0.05, 0.1, 0.2, 0.4)  # of what parts were thought to be worth: what else they are
OWN = (0.1, 0.25, 0.5)  # of the noise: how far a candidate is from the sum of its parts
UNSURE = 2.0  # times the noise of an analysis: that of a candidate on one split, if unknown
VAGUE = 0.25  # of how far a failure is below the head alone: what that may be off by
SURE = 0.2  # times that: the least, as accuracies of few samples may be equal by chance

Seen = Sequence[Mapping[Candidate, Outcome]]  # on each split of the data


@dataclass(frozen=True)
class Worths:
    """One way in which parts may be worth something among others, in points of accuracy."""

    belief: Belief
    largest: float  # sum of single gains that was tried
    parts: Array  # [2 * layers], then how the sum and its square bend it

    def total(self, candidate: Candidate) -> float:
        """Of single gains."""
        return float(features([candidate], self.belief.biased)[0] @ self.belief.mean)

    def of(self, candidate: Candidate) -> float:
        """Over the head alone."""
        own, total = features([candidate], self.belief.biased)[0], self.total(candidate)
        return float(np.append(own, [total, total**2 / self.largest]) @ self.parts)

    def gains(self, total: float) -> Contributions:
        """What a further part gains where single gains add up to so much."""
        slope = self.parts[-2] + 2 * self.parts[-1] * total / self.largest
        return self.belief.as_gains(self.parts[:-2] + slope * self.belief.mean)


@dataclass(frozen=True)
class Company:
    """What is believed of worths, and of candidates that were tried."""

    expected: Worths
    covariance: Array
    own: Mapping[Candidate, float]  # what a candidate is better than its parts
    likely: float

    @classmethod
    def of(cls, belief: Belief, seen: Seen = ()) -> Company:
        """After candidates were tried on some splits each, the head alone on all of them."""
        evidence = Evidence.of(belief, seen)
        every = (evidence.read(*shares) for shares in itertools.product(OTHERWISE, OWN))
        return max(every, key=lambda company: company.likely)

    def worth(self, candidate: Candidate) -> float:
        return self.expected.of(candidate) + self.own.get(candidate, 0.0)

    def drawn(self, random: np.random.Generator) -> Worths:
        """As likely as any, as far as anybody knows."""
        mean = self.expected.parts
        small = 1e-9 * float(np.trace(self.covariance)) + 1e-12  # of rounding
        root = np.linalg.cholesky(self.covariance + small * np.eye(len(mean)))
        worths = mean + root @ random.normal(size=len(mean))
        return Worths(self.expected.belief, self.expected.largest, worths)


@dataclass(frozen=True)
class Evidence:
    """Outcomes as numbers: one row for each candidate and split, one column for each measure."""

    belief: Belief
    candidates: Sequence[Candidate]
    told: Array  # [rows, 2 * layers + 2]
    values: Array  # [rows, measures], accuracy first
    noises: Array  # [measures]
    same: Array  # [rows, rows]: 1 where the candidate is the same
    split: Array  # [rows, rows]: 1 where the split is the same
    failed: Array  # [rows]: 1 for failures

    @classmethod
    def of(cls, belief: Belief, seen: Seen) -> Evidence:
        kinds = belief.measure.each
        candidates = [c for outcomes in seen for c in outcomes]
        values = [np.column_stack([kind.values(o) for kind in kinds]) for o in seen]
        numbers = np.array([list(dict.fromkeys(candidates)).index(c) for c in candidates], int)
        turns = np.repeat(np.arange(len(seen)), [len(o) for o in seen])
        gone = [failures(outcomes) for outcomes in seen]
        parts = features(candidates, belief.biased)
        sums = parts @ belief.mean
        largest = float(np.abs(sums).max(initial=0.0)) or 1.0
        return cls(
            belief,
            candidates,
            np.column_stack([parts, sums, sums**2 / largest]),
            np.concatenate([np.zeros((0, len(kinds))), *values]),
            np.array(
                [noise_of(belief, seen, [v[:, i] for v in values]) for i in range(len(kinds))]
            ),
            (numbers[:, None] == numbers).astype(float),
            (turns[:, None] == turns).astype(float),
            np.array([float(c in gone[turn]) for turn, o in enumerate(seen) for c in o]),
        )

    def read(self, otherwise: float, own: float) -> Company:
        """If parts are so much else in company, and candidates so far from their sum.

        There is one set of worths for each measure. What single parts told is common to all.
        """
        belief, measures = self.belief, len(self.noises)
        width = len(belief.mean) + 2
        common, apart = np.zeros((2, width, width))
        common[:-2, :-2] = LEFT**2 * belief.covariance
        apart[:-2, :-2] = otherwise**2 * belief.before
        apart[-2:, -2:] = BEND**2 * np.eye(2)
        each = np.eye(measures)
        before = np.kron(np.ones_like(each), common) + np.kron(each, apart)
        mean = np.tile(np.append(LEFT * belief.mean, [0.0, 0.0]), measures)
        told, values = np.kron(each, self.told), self.values.T.ravel()
        chance = self.chance(own)
        likely = likelihood(values - told @ mean, told @ before @ told.T + chance)
        mean, after, pull = learned(mean, before, told, values, chance)
        rows = len(self.candidates)
        more = (own * self.noises[0]) ** 2 * (self.same @ pull[:rows])
        better = {c: float(m) for c, m in zip(self.candidates, more, strict=True)}
        head = better.get(Candidate(), 0.0)
        worths = Worths(belief, self.largest, mean[:width])
        above = {c: m - head for c, m in better.items()}
        return Company(worths, after[:width, :width], above, likely)

    @property
    def largest(self) -> float:
        return float(np.abs(self.told[:, -2]).max(initial=0.0)) or 1.0

    def chance(self, own: float) -> Array:
        """How outcomes vary that nothing explains.

        One split may be easier than others. What fails is below all others, but which of its parts
        made it fail is not known, so it tells less.
        """
        whole = np.zeros((len(self.noises) * len(self.same),) * 2)
        for i, noise in enumerate(self.noises):
            here = slice(i * len(self.same), (i + 1) * len(self.same))
            values = self.values[:, i]
            far = self.largest + float(np.abs(values).max(initial=0.0)) + noise
            whole[here, here] = noise**2 * (np.eye(len(values)) + own**2 * self.same)
            whole[here, here] += far**2 * self.split + np.diag((VAGUE * values) ** 2 * self.failed)
        return whole


def failures(outcomes: Mapping[Candidate, Outcome]) -> set[Candidate]:
    """Those that diverged, or were given up for being far below the head alone."""
    low = outcomes[Candidate()].accuracy - HOPELESS
    return {c for c, o in outcomes.items() if o.diverged or o.accuracy < low}


def noise_of(belief: Belief, seen: Seen, values: Sequence[Array]) -> float:
    """That of one outcome, by how candidates differ between two splits.

    By the median, so that one that failed once does not make all others look unsure.
    """
    by_split = [dict(zip(o, v, strict=True)) for o, v in zip(seen, values, strict=True)]
    apart: list[float] = []
    for one, other in itertools.combinations(by_split, 2):
        both = np.array([one[c] - other[c] for c in one if c in other])
        if len(both) > 2:
            share = math.sqrt(len(both) / (len(both) - 1))
            apart += (share * np.abs(both - np.median(both))).tolist()
    if not apart:
        return UNSURE * belief.noise
    return max(1.4826 * float(np.median(apart)) / math.sqrt(2), SURE * belief.noise)
