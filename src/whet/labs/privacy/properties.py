"""Property inference: does an update come from data with a property that nobody asked about?

The attacker has data of their own, with and without the property, computes updates from them with
the same program, and trains a classifier on those (Melis et al., "Exploiting Unintended Feature
Leakage in Collaborative Learning", 2019). Here that is logistic regression on a random projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError
from .membership import flat_rows
from .roc import Array, Roc

DIMENSIONS = 128  # of the projection: distances between a few hundred updates survive it
PENALTY = 1.0  # of the squared coefficients
ROUNDS = 25  # Newton steps; it converges in fewer than ten


@dataclass(frozen=True, eq=False)
class PropertyAttack:
    """A classifier of updates; make one with `fit`."""

    projection: Array | None
    mean: Array
    deviation: Array
    weights: Array  # the last one is the intercept

    @classmethod
    def fit(
        cls, updates: Any, has: Any, *, dimensions: int = DIMENSIONS, seed: int = 0
    ) -> PropertyAttack:
        """From updates, as rows or as dicts of arrays, and whether each has the property."""
        rows, target = as_rows(updates), np.asarray(has, bool)
        if len(rows) != len(target):
            raise DataError(f"there are {len(rows)} updates and {len(target)} answers")
        if len(set(target.tolist())) != 2:
            raise DataError("the attacker needs updates with and without the property")
        projection = None
        if rows.shape[1] > dimensions:
            rng = np.random.default_rng(seed)
            projection = rng.normal(0, dimensions**-0.5, (rows.shape[1], dimensions))
            rows = rows @ projection
        mean, deviation = rows.mean(0), rows.std(0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        weights = logistic((rows - mean) / deviation, target)
        return cls(projection, mean, deviation, weights)

    def scores(self, updates: Any) -> Array:
        """The log-odds that each update has the property."""
        rows = as_rows(updates)
        if self.projection is not None:
            rows = rows @ self.projection
        if rows.shape[1] != len(self.mean):
            raise DataError("these updates have another number of coordinates than those before")
        scaled = (rows - self.mean) / self.deviation
        return np.asarray(scaled @ self.weights[:-1] + self.weights[-1])

    def judge(self, updates: Any, has: Any) -> Roc:
        """The ROC on updates of data that the attacker did not train on."""
        scores, target = self.scores(updates), np.asarray(has, bool)
        return Roc.of(scores[target], scores[~target])


def as_rows(updates: Any) -> Array:
    if isinstance(updates, Sequence) and len(updates) and isinstance(updates[0], Mapping):
        return flat_rows(updates)
    rows = np.asarray(updates, np.float64)
    if rows.ndim != 2:
        raise DataError(f"updates of shape {rows.shape} are not rows of numbers")
    return rows


def logistic(rows: Array, target: Array, penalty: float = PENALTY) -> Array:
    """Coefficients and intercept of L2-penalised logistic regression, by Newton's method."""
    design = np.hstack([rows, np.ones((len(rows), 1))])
    ridge = np.append(np.full(rows.shape[1], penalty), 1e-6)
    weights = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (chance - target) + ridge * weights
        curvature = (design.T * (chance * (1 - chance))) @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, slope)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights
