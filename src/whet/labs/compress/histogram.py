"""Histograms of the weights of a layer: before sharing, after it, and after retraining."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import DataError
from ...report import svg
from .kmeans import Array
from .sharing import nonzeros, shareable, values_of

BINS = 160  # narrow enough that the values of a codebook stand apart
TITLES = ("before sharing", "after sharing", "after retraining")
COLORS = ("#34699a", "#c2313d", "#4f9d69")
GAP, LEFT, TOP = 52.0, 58.0, 96.0
WIDTH = (svg.WIDTH - LEFT - 20 - 2 * GAP) / 3
HEIGHT = 250.0
Weights = Array | Tensor


def histograms(before: nn.Module, after: nn.Module, retrained: nn.Module) -> dict[str, str]:
    """An SVG for every weight of two or more axes, by its name."""
    later = [dict(model.named_parameters()) for model in (after, retrained)]
    every = [(name, weight) for name, weight in shareable(before) if all(name in m for m in later)]
    return {n: histogram_svg(weight, later[0][n], later[1][n], n) for n, weight in every}


def histogram_svg(before: Weights, after: Weights, retrained: Weights, name: str = "") -> str:
    """Three panels of one weight, with one axis of values. Zeros, the pruned weights, are left out.

    The vertical axes differ: a value of a codebook has as many weights as a range of values had.
    """
    every = [array_of(weights) for weights in (before, after, retrained)]
    live = [found[found != 0] for found in every]
    if not all(np.isfinite(values).all() for values in live):
        raise DataError(f"no histogram of {name or 'the weights'}", why="not all are finite")
    top = max((float(np.abs(values).max()) for values in live if values.size), default=1.0)
    edges = np.linspace(-top, top, BINS + 1)
    parts = []
    for i, (values, title) in enumerate(zip(live, TITLES, strict=True)):
        distinct = len(nonzeros(values))
        words = f"{title}: {distinct:,} value{'' if distinct == 1 else 's'}"
        counts = np.histogram(values.astype(np.float64), edges)[0]
        parts += panel(LEFT + i * (WIDTH + GAP), words, edges, counts.tolist(), COLORS[i])
    zeros = every[0].size - live[0].size
    subtitle = f"{every[0].size:,} weights, {zeros:,} of them zero (not shown)"
    title = f"Weights of {name}" if name else "Weights"
    return svg.page(title, subtitle, parts, height=TOP + HEIGHT + 50)


def array_of(weights: Weights) -> Array:
    found = values_of(weights) if isinstance(weights, torch.Tensor) else np.asarray(weights)
    return found.ravel()


def panel(left: float, title: str, edges: Array, counts: Sequence[int], color: str) -> list[str]:
    """A bar for each range of values that has weights, with axes."""
    bottom, right, most = TOP + HEIGHT, left + WIDTH, max(*counts, 1)
    top = float(edges[-1])

    def x(value: float) -> float:
        return left + WIDTH * (value + top) / (2 * top)

    parts = [svg.text(left, TOP - 14, title, 13)]
    for tick in (t for t in svg.ticks(most, 5) if t == int(t)):
        y = bottom - HEIGHT * tick / most
        parts.append(svg.rule(left, y, right, y, svg.RULE))
        parts.append(svg.text(left - 6, y + 4, f"{tick:,.10g}", text_anchor="end"))
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            tip = svg.tooltip(f"{low:.4g} to {high:.4g}: {count:,} weights")
            height = max(HEIGHT * count / most, 0.6)
            place = x(low), bottom - height, WIDTH / BINS, height
            parts.append(svg.rect(*place, tip, fill=color, class_="bar"))
    parts.append(svg.rule(left, bottom, right, bottom, svg.GREY))
    for tick in svg.ticks(top, 2):
        for value in {-tick, tick}:
            words = f"{value:.6g}"
            parts.append(svg.text(x(value), bottom + 17, words, text_anchor="middle"))
    return [*parts, svg.text((left + right) / 2, bottom + 36, "weight", text_anchor="middle")]
