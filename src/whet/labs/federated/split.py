"""Who has which samples: the same mixture for all, mixtures of labels that differ, or groups."""

from __future__ import annotations

import math

import numpy as np

from ...errors import DataError
from ..common.data import Array


def iid(count: int, clients: int, seed: int = 0) -> list[Array]:
    """Rows for each client: `count` samples dealt out at random, equally many for each."""
    check(count, clients, 1)
    order = np.random.default_rng(seed).permutation(count)
    return [np.sort(part) for part in np.array_split(order, clients)]


def dirichlet(
    labels: Array, clients: int, alpha: float, seed: int = 0, least: int = 1
) -> list[Array]:
    """Rows for each client: every class is divided in proportions drawn from Dirichlet(alpha).

    This is the split of Hsu et al. (arXiv:1909.06335) by class: with a small alpha, a client has
    samples of few classes, and clients differ in size; with a large one, all are alike. A client
    with fewer than `least` samples is given random ones of the largest client.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"labels of {labels.dtype} and shape {labels.shape} name no classes",
            try_="one integer for each sample",
        )
    if not (math.isfinite(alpha) and alpha > 0):
        raise DataError(f"alpha={alpha} is not a positive number", try_="alpha=0.5")
    check(len(labels), clients, least)
    random = np.random.default_rng(seed)
    parts: list[list[Array]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        shares = np.cumsum(random.dirichlet(np.full(clients, alpha)))[:-1]
        # A tiny alpha may underflow to shares of 0 / 0; one client then has all of the class.
        shares = np.nan_to_num(shares, nan=1.0)
        for part, piece in zip(parts, np.split(rows, cuts(shares, len(rows))), strict=True):
            part.append(piece)
    return filled([np.concatenate(part) for part in parts], least, random)


def by_group(groups: Array) -> list[Array]:
    """Rows for each group, such as a person, in the order of their names."""
    groups = np.asarray(groups)
    if groups.ndim != 1 or not groups.size:
        raise DataError("groups are one name or number for each sample")
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]


def cuts(shares: Array, count: int) -> Array:
    return np.rint(np.clip(shares, 0, 1) * count).astype(int)


def filled(parts: list[Array], least: int, random: np.random.Generator) -> list[Array]:
    """With at least `least` rows each; those that lack some take them from the largest."""
    for i in range(len(parts)):
        while (lack := least - len(parts[i])) > 0:
            largest = max(range(len(parts)), key=lambda k: len(parts[k]))
            spare = len(parts[largest]) - least
            taken = random.permutation(len(parts[largest]))[: min(lack, spare)]
            parts[i] = np.concatenate([parts[i], parts[largest][taken]])
            parts[largest] = np.delete(parts[largest], taken)
    return [np.sort(part) for part in parts]


def check(count: int, clients: int, least: int) -> None:
    if clients < 1:
        raise DataError(f"{clients} clients are none")
    if count < clients * max(least, 1):
        raise DataError(
            f"{count} samples are too few for {clients} clients",
            why=f"each has at least {max(least, 1)}",
            try_="fewer clients, or more data",
        )
