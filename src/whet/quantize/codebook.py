"""K-means: frozen weights that take few values, by a codebook for each layer."""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Value
from ..training import IntegerRules

ROUNDS = 300


def importance(graph: Graph, integers: IntegerRules, leaf: Value) -> Array:
    """How much a squared error counts: an integer stands for itself times its channel's scale."""
    if leaf.name not in integers.units:
        return np.ones(leaf.shape)
    unit = integers.units[leaf.name]
    along = [1] * leaf.type.rank
    along[unit.axis] = -1
    scale = graph.data[unit.scale].astype(np.float64).reshape(along)
    return np.broadcast_to((scale / scale.max()) ** 2, leaf.shape)


def few_values(data: Array, frozen: Array, bits: int, counts: Array) -> Array:
    """The array with each frozen number replaced by the nearest of a codebook.

    The rest is 0 in what the program stores, so that 0 is an entry then; as it is if many numbers
    are 0, as in a pruned weight.
    """
    values = data[frozen]
    if values.size == 0 or not np.all(np.isfinite(values)):
        return data
    zero = not frozen.all() or bool((values == 0).mean() > 0.5**bits)
    book = codebook(values, counts[frozen], 2**bits, zero)
    shared = data.copy()
    shared[frozen] = book[nearest(values, book)]
    return shared


def codebook(values: Array, counts: Array, most: int, zero: bool = False) -> Array:
    """At most this many values near all others, sorted, `zero` among them if it has to be.

    Those that there are, if they are few. Else Lloyd's method, from a grid between the smallest and
    the largest value. Integers give integers.
    """
    distinct, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place.ravel(), counts.ravel())
    if zero:
        mass, distinct = mass[distinct != 0], distinct[distinct != 0]
        most -= 1
    if len(distinct) > most:
        centers = lloyd(distinct.astype(np.float64), mass, most)
        whole = np.issubdtype(values.dtype, np.integer)
        distinct = np.unique((np.rint(centers) if whole else centers).astype(values.dtype))
    if zero:
        distinct = np.unique(np.append(distinct, np.zeros(1, values.dtype)))
    return distinct


def lloyd(x: Array, mass: Array, k: int) -> Array:
    """k means of the sorted values x. One without values moves to where the error is largest."""
    before = np.concatenate([np.zeros((2, 1)), np.cumsum([mass, mass * x], axis=1)], axis=1)
    centers = np.linspace(x[0], x[-1], k)
    for _ in range(ROUNDS):
        ends = np.concatenate([[0], np.searchsorted(x, middles(centers)), [len(x)]])
        total, moment = np.diff(before[:, ends], axis=1)
        means = np.where(total > 0, moment / np.where(total > 0, total, 1), centers)
        if (total == 0).any():
            owner = np.repeat(np.arange(k), np.diff(ends))
            error = np.bincount(owner, mass * (x - means[owner]) ** 2, k)
            worst = int(error.argmax())
            means[np.flatnonzero(total == 0)[0]] = (means[worst] + x[ends[worst + 1] - 1]) / 2
            means.sort()
        if np.array_equal(means, centers):
            break
        centers = means
    return centers


def middles(book: Array) -> Array:
    return (book[1:].astype(np.float64) + book[:-1]) / 2


def nearest(values: Array, book: Array) -> Array:
    """The index of the entry of a sorted codebook that is nearest to each value."""
    return np.searchsorted(middles(book), values)
