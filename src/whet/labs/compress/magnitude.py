"""Magnitude pruning: the loss is to be least subject to a number of weights that are not zero.

minimise L(W) subject to ||W||_0 <= N has no tractable solution; the one in use since LeCun (1990)
and Han et al. (2015) keeps the N weights of largest magnitude and retrains them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ...errors import SchemeError, either, option
from .tables import aligned, percent
from .weights import Array, Layers, Weight, check_finite, finish, unknown, weights

Scope = str | Mapping[str, float]
SCOPES = ("global", "layer")


@dataclass(frozen=True)
class Pruned:
    """The weights of a model: size and non-zeros of each, by name."""

    rows: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, model: nn.Module, layers: Layers = None, biases: bool = False) -> Pruned:
        found = weights(model, layers, biases)
        return cls({name: (w.size, w.nonzeros) for name, w in found.items()})

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.rows.values())

    @property
    def nonzeros(self) -> int:
        return sum(left for _, left in self.rows.values())

    @property
    def kept(self) -> float:
        return self.nonzeros / self.size

    def __str__(self) -> str:
        rows = {**self.rows, "total": (self.size, self.nonzeros)}
        lines = [(n, f"{size:,}", f"{left:,}", percent(left / size))
                 for n, (size, left) in rows.items()]  # fmt: skip
        return aligned([("layer", "weights", "non-zero", "kept"), *lines])


def prune(
    model: nn.Module,
    keep: float | None = None,
    *,
    nonzeros: int | None = None,
    scope: Scope = "global",
    layers: Layers = None,
    biases: bool = False,
) -> Pruned:
    """Set the smallest weights to zero, in place; exactly `nonzeros`, or a share `keep`, stay.

    scope="global" ranks all weights together and "layer" each layer alone, with the same share of
    every layer; a mapping gives the share that is kept of each layer it names. Of equal magnitudes,
    the first stay. If anything is wrong, nothing changes.
    """
    finish(model)
    found = weights(model, layers, biases)
    check_finite(found)
    values = [np.abs(w.values) for w in found.values()]
    kept = choose(found, values, keep, nonzeros, scope)
    check_left(list(found), values, kept, None if isinstance(scope, Mapping) else scope)
    with torch.no_grad():
        for weight, mask in zip(found.values(), kept, strict=True):
            drop = torch.from_numpy(~mask).view(weight.tensor.shape).to(weight.tensor.device)
            weight.tensor.masked_fill_(drop, 0.0)
    return Pruned.of(model, layers, biases)


def choose(
    found: Mapping[str, Weight],
    values: Sequence[Array],
    keep: float | None,
    nonzeros: int | None,
    scope: Scope,
) -> list[Array]:
    """A mask of what stays for each weight."""
    sizes = np.array([len(v) for v in values])
    if isinstance(scope, Mapping):
        if keep is not None or nonzeros is not None:
            raise SchemeError(
                "a scope by layer gives the share of each", try_=f"{option('keep')} or a mapping"
            )
        counts = by_layer(found, scope)
    elif scope not in SCOPES:
        raise SchemeError(f"scope={scope!r} is unknown", try_=tuple(f'"{s}"' for s in SCOPES))
    else:
        count = how_many(keep, nonzeros, int(sizes.sum()))
        if scope == "global":
            return np.split(largest(np.concatenate(values), count), np.cumsum(sizes)[:-1])
        counts = shared_out(count, sizes)
    return [largest(v, int(n)) for v, n in zip(values, counts, strict=True)]


def how_many(keep: float | None, nonzeros: int | None, size: int) -> int:
    """The number of weights that stay."""
    if (keep is None) == (nonzeros is None):
        raise SchemeError(
            "a target is one of keep and nonzeros", try_=(option("keep", 0.1), "nonzeros=10_000")
        )
    if nonzeros is None:
        assert keep is not None
        check_share(keep)
        return max(1, math.floor(keep * size + 0.5))
    if isinstance(nonzeros, bool) or not isinstance(nonzeros, int) or not 0 < nonzeros <= size:
        raise SchemeError(
            f"nonzeros={nonzeros!r} is not a number of weights",
            why=f"there are {size:,} to choose from",
            try_=f"nonzeros={max(1, size // 10):_}",
        )
    return nonzeros


def check_share(share: object, name: str = "keep") -> None:
    number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not number or not 0 < share <= 1:  # type: ignore[operator]
        try_ = option(name, 0.1)
        if number and 1 < share <= 100:  # type: ignore[operator]
            try_ = option(name, share / 100)  # type: ignore[operator]
        raise SchemeError(f"{name}={share!r} is not a share above 0 and up to 1", try_=try_)


def by_layer(found: Mapping[str, Weight], shares: Mapping[str, float]) -> Array:
    """Counts for each weight; the first name or pattern that matches one is for it."""
    for pattern, share in shares.items():
        check_share(share, f"share of {pattern}")
        if not any(w.is_called(pattern) for w in found.values()):
            raise unknown(pattern, found)
    given = [next((s for p, s in shares.items() if w.is_called(p)), 1.0) for w in found.values()]
    return np.array(
        [math.floor(s * w.size + 0.5) for s, w in zip(given, found.values(), strict=True)]
    )


def shared_out(count: int, sizes: Array) -> Array:
    """Counts in proportion to the sizes that sum to `count`: the largest remainders round up."""
    quotas = count * sizes / sizes.sum()
    counts = np.floor(quotas).astype(np.int64)
    order = np.argsort(counts - quotas, kind="stable")
    counts[order[: count - counts.sum()]] += 1
    return counts


def largest(values: Array, count: int) -> Array:
    """A mask of exactly `count` of the largest values; the first of equal ones."""
    if count >= len(values):
        return np.ones(len(values), bool)
    if count == 0:
        return np.zeros(len(values), bool)
    edge = np.partition(values, len(values) - count)[len(values) - count]
    mask = values > edge
    mask[np.flatnonzero(values == edge)[: count - np.count_nonzero(mask)]] = True
    return mask


def check_left(
    names: Sequence[str], values: Sequence[Array], kept: Sequence[Array], scope: str | None
) -> None:
    """Refuse to remove a whole layer."""
    gone = [
        i for i, (v, m) in enumerate(zip(values, kept, strict=True)) if v.any() and not v[m].any()
    ]
    if not gone:
        return
    sizes = [len(v) for v in values]
    if scope == "global":
        every = np.concatenate(values)
        least = max(int(np.count_nonzero(every >= v.max())) for v in values if v.any())
    else:
        least = math.ceil(sum(sizes) / min(sizes[i] for i in gone))
    most = f"--prune {math.floor(1000 * (1 - least / sum(sizes))) / 1000:g}"
    tries = [f"{either(f'nonzeros={least:_}', most)}, with which every layer keeps some"]
    if scope is None:
        tries = [f"a share of at least {1 / sizes[i]:.2g} for {names[i]}" for i in gone]
    elif scope == "global":
        tries.append(option("scope", "layer"))
    raise SchemeError(
        f"{'a layer' if len(gone) == 1 else f'{len(gone)} layers'} would vanish",
        at=tuple(names[i] for i in gone[:5]),
        why=tuple(f"none of its {sizes[i]:,} weights is left" for i in gone[:5]),
        try_=tuple(tries),
    )
