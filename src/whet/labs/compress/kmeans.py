"""K-means in one dimension: few values that stand for many, at the least squared error.

In one dimension a cluster is a range of the sorted values, so an iteration of Lloyd's algorithm is
a binary search for the borders and a difference of prefix sums: O(k log n) after one sort, where a
general implementation needs O(k n).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from ...errors import DataError, SchemeError

Array = np.ndarray[Any, Any]
Init = Literal["linear", "density", "random"]
INITS: tuple[str, ...] = get_args(Init)
MOST = 500  # iterations; tens are typical


def kmeans(
    values: Array, clusters: int, init: Init = "linear", seed: int = 0
) -> tuple[Array, Array]:
    """At most `clusters` centroids in ascending order, and the index of one for each value.

    "linear" starts from centroids at equal distances between the least and the greatest value,
    "density" from as many values in each cluster, "random" from distinct values drawn by `seed`.
    Centroids have the type of the values. With no more distinct values than clusters, the result
    is exact.
    """
    if init not in INITS:
        raise SchemeError(f"init={init!r} is not a way to start k-means", try_=INITS)
    if clusters < 1:
        raise SchemeError(f"{clusters} clusters are too few", try_="1 or more")
    flat = values.ravel()
    if not np.isfinite(flat).all():
        raise DataError("values to cluster must be finite", why="there is a NaN or an infinity")
    points, place, counts = np.unique(flat, return_inverse=True, return_counts=True)
    if len(points) <= clusters:
        return points, place.reshape(values.shape)
    sums = Sums(points.astype(np.float64), counts)
    borders = lloyd(sums, start(sums, clusters, init, seed))
    centroids = sums.means(borders).astype(values.dtype)
    owner = np.repeat(np.arange(clusters), np.diff(borders))
    return centroids, owner[place].reshape(values.shape)


class Sums:
    """Prefix sums over distinct values in ascending order."""

    def __init__(self, points: Array, counts: Array) -> None:
        shifted = points - np.average(points, weights=counts)  # for the difference of squares
        self.points = points
        self.counts = np.append(0, np.cumsum(counts))
        self.first = np.append(0.0, np.cumsum(counts * points))
        self.centred = np.append(0.0, np.cumsum(counts * shifted))
        self.second = np.append(0.0, np.cumsum(counts * shifted**2))

    def means(self, borders: Array) -> Array:
        """Of the points in each range, which is not empty."""
        means = np.diff(self.first[borders]) / np.diff(self.counts[borders])
        low, high = self.points[borders[:-1]], self.points[borders[1:] - 1]
        return np.clip(means, low, high)  # prefix sums are rounded

    def errors(self, borders: Array) -> Array:
        """The squared error of each range around its mean; -1 for a single value."""
        counts, first = np.diff(self.counts[borders]), np.diff(self.centred[borders])
        found = np.diff(self.second[borders]) - first**2 / np.maximum(counts, 1)
        return np.where(np.diff(borders) > 1, np.maximum(found, 0), -1.0)


def start(sums: Sums, clusters: int, init: Init, seed: int) -> Array:
    """The first borders: range i is points[borders[i] : borders[i + 1]]."""
    points = sums.points
    if init == "density":
        shares = np.arange(1, clusters) * (sums.counts[-1] / clusters)
        return bordered(np.searchsorted(sums.counts, shares), len(points))
    if init == "linear":
        centroids = np.linspace(points[0], points[-1], clusters)
    else:
        random = np.random.default_rng(seed)
        centroids = np.sort(random.choice(points, clusters, replace=False))
    return assign(points, centroids)


def assign(points: Array, centroids: Array) -> Array:
    return bordered(np.searchsorted(points, (centroids[1:] + centroids[:-1]) / 2), len(points))


def bordered(inner: Array, count: int) -> Array:
    return np.concatenate([[0], inner, [count]])


def lloyd(sums: Sums, borders: Array) -> Array:
    """Means and nearest points in turn, until no point changes its cluster."""
    for _ in range(MOST):
        borders = filled(sums, borders)
        new = assign(sums.points, sums.means(borders))
        if np.array_equal(new, borders):
            break
        borders = new
    return filled(sums, borders)


def filled(sums: Sums, borders: Array) -> Array:
    """No range is empty: each that was takes half of the range with the largest error.

    Linear initialization of pruned weights leaves the clusters around zero without any.
    """
    sizes = np.diff(borders)
    missing = int((sizes == 0).sum())
    borders = np.append(0, borders[1:][sizes > 0])
    for _ in range(missing):
        worst = int(np.argmax(sums.errors(borders)))
        low, high = borders[worst], borders[worst + 1]
        mean = sums.means(borders[worst : worst + 2])[0]
        cut = np.clip(np.searchsorted(sums.points, mean), low + 1, high - 1)
        borders = np.insert(borders, worst + 1, cut)
    return borders
