"""Accuracy over compression rate: pruning alone, shared values alone, both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...errors import SchemeError
from ..common.plot import percent_svg
from ..common.progress import Progress, bar
from .iterate import Evaluate, Train, accuracy, check_rounds
from .pipeline import compress
from .sharing import MOST_BITS, bits_by_name
from .sizes import Sizes
from .storage import measure
from .store import Results, checksum
from .tables import aligned
from .weights import Layers, finish, weights

WAYS = {"prune": "pruning", "kmeans": "k-means", "both": "pruning and k-means"}
RATES = (2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0)
POSITION = 0.5  # bits that codes of positions take above the entropy, about


@dataclass(frozen=True)
class Point:
    """One compressed model: the rate is that of its file."""

    way: str
    keep: float
    bits: int | None
    rate: float
    bytes: int
    accuracy: float


@dataclass(frozen=True)
class Curves:
    base: float  # accuracy before
    bytes: int  # in 32-bit floats
    points: tuple[Point, ...]
    left_out: tuple[str, ...] = ()  # settings that did not work, and why

    def of(self, way: str) -> list[Point]:
        return sorted((p for p in self.points if p.way == way), key=lambda p: p.rate)

    def __str__(self) -> str:
        lines = [("way", "kept", "bits", "bytes", "smaller", "accuracy")]
        for way, name in WAYS.items():
            lines += [
                (name, f"{100 * p.keep:.1f} %", str(p.bits or 32), f"{p.bytes:,}",
                 f"{p.rate:.1f}x", f"{p.accuracy:.2f}")
                for p in self.of(way)
            ]  # fmt: skip
        end = f"at the start: {self.bytes:,} bytes, {self.base:.2f}"
        return "\n".join([aligned(lines), end, *(f"left out: {why}" for why in self.left_out)])

    def svg(self, title: str = "Accuracy and compression") -> str:
        found = {name: self.of(way) for way, name in WAYS.items()}
        curves = {n: [(p.rate, p.accuracy) for p in ps] for n, ps in found.items() if ps}
        words = f"rate: {self.bytes:,} bytes of 32-bit floats over the bytes of the file"
        return percent_svg(curves, title, words, "compression rate", self.base)


def curves(
    model: nn.Module,
    train: Train,
    evaluate: Evaluate,
    rates: Sequence[float] = RATES,
    ways: Sequence[str] = tuple(WAYS),
    *,
    bits: int = 4,
    rounds: int = 3,
    settle: int = 1,
    centroid_rounds: int = 1,
    scope: str = "global",
    layers: Layers = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Curves:
    """Compress copies of the model to about each of the rates in each of the ways.

    Pruning to a rate removes as many weights as that takes; k-means has the bits nearest to it;
    both have `bits` and remove the rest. A rate that a way cannot reach is left out, as is one at
    which a layer would vanish. The rate of a point is measured. With a folder, an interrupted call
    resumes.
    """
    check(rates, ways)
    check_rounds(rounds, settle)
    finish(model)
    bits_by_name(model, bits, layers)  # refuses bad ones
    sizes = measure(model)
    found = weights(model, layers)
    todo = [
        (way, *setting) for way in ways for setting in settings(way, rates, sizes, set(found), bits)
    ]
    if not todo:
        raise SchemeError("none of the rates can be reached", try_="rates=(2, 4, 8)")
    options = dict(
        rounds=rounds, settle=settle, centroid_rounds=centroid_rounds, scope=scope, layers=layers,
        seed=seed,
    )  # fmt: skip
    place = None if folder is None else Path(folder)
    results = Results(place and place / "curves.json", {"model": checksum(model), **options})
    if "base" not in results:
        results.put("base", accuracy(evaluate, model))
    points, left_out = [], []
    with bar(progress) as show:
        show("curves", 0, len(todo))
        for done, (way, keep, width) in enumerate(todo, 1):
            key = f"{way} {keep!r} {width}"
            if key not in results:
                made = one_point(
                    model, way, keep, width, sizes.dense, train=train, evaluate=evaluate,
                    progress=show, folder=place and place / key.replace(" ", "-"), **options,
                )  # fmt: skip
                results.put(key, made)
            found = results[key]
            if isinstance(found, str):
                left_out.append(f"{WAYS[way]}, {100 * keep:.1f} % kept: {found}")
            else:
                points.append(Point(**found))
            show("curves", done, len(todo))
    return Curves(float(results["base"]), sizes.dense, tuple(points), tuple(left_out))


def one_point(
    model: nn.Module, way: str, keep: float, width: int | None, dense: int, **options: Any
) -> dict[str, Any] | str:
    """A point as JSON has it, or why there is none."""
    prune = None if way == "kmeans" else 1 - keep
    try:
        made = compress(model, prune=prune, kmeans=width, **options)
    except SchemeError as error:  # a layer would vanish
        return error.what
    return asdict(Point(way, keep, width, dense / made.bytes, made.bytes, made.accuracy))


def check(rates: Sequence[float], ways: Sequence[str]) -> None:
    if not len(rates) or not all(np.isfinite(rate) and rate > 1 for rate in rates):
        raise SchemeError(f"rates={rates!r} are not all above 1", try_="rates=(2, 4, 8)")
    if isinstance(ways, str) or not ways or not set(ways) <= WAYS.keys():
        raise SchemeError(f"ways={ways!r}", try_=f"ways={tuple(WAYS)}")


def settings(
    way: str, rates: Sequence[float], sizes: Sizes, names: set[str], bits: int
) -> list[tuple[float, int | None]]:
    """Shares that stay, and bits of an index, whose files are about as small as each rate says."""
    size = sum(t.elements for t in sizes.tensors if t.name in names)
    other = sizes.header + sum(t.total for t in sizes.tensors if t.name not in names)
    found: list[tuple[float, int | None]] = []
    for rate in sorted(rates):
        each = 8 * (sizes.dense / rate - other) / size  # bits for each weight
        setting = setting_for(way, each, bits)
        if setting is not None and setting not in found:
            found.append(setting)
    return found


def setting_for(way: str, each: float, bits: int) -> tuple[float, int | None] | None:
    """What takes about so many bits for each weight, if anything does."""
    if way == "kmeans":
        width = round(each)
        return (1.0, width) if 1 <= width <= MOST_BITS else None
    width = bits if way == "both" else 32
    keep = share_for(each, width) if each < width else None
    return None if keep is None else (keep, bits if way == "both" else None)


def share_for(bits: float, width: int) -> float | None:
    """The share of weights, of `width` bits and with coded positions, that takes so many bits."""
    shares = np.geomspace(1e-4, 0.999, 4000)
    entropy = -shares * np.log2(shares) - (1 - shares) * np.log2(1 - shares)
    fitting = np.flatnonzero(shares * (width + POSITION) + entropy <= bits)
    return round(float(shares[fitting[-1]]), 4) if len(fitting) else None
