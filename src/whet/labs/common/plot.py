"""Curves on axes, shared by the plots of labs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...report import svg
from ...report.curves import (
    BOTTOM,
    COLORS,
    LEFT,
    RIGHT,
    TOP,
    Points,
    Scale,
    curve,
    rules,
    scale,
)


def tens(values: Sequence[float]) -> tuple[float, float]:
    """Multiples of ten around percentages."""
    low = 10.0 * math.floor(min(values) / 10)
    return low, max(10.0 * math.ceil(max(values) / 10), low + 10)


def percent_svg(
    curves: Mapping[str, Points], title: str, subtitle: str, across: str, base: float | None = None
) -> str:
    """Percentages over positive numbers on a logarithmic axis; `base` is a dashed rule."""
    every = [point for points in curves.values() for point in points]
    xs = sorted({x for x, _ in every})
    low, high = tens([y for _, y in every] + ([] if base is None else [base]))
    first, last = math.log(xs[0]), math.log(xs[-1])
    place = scale(first, last if last > first else first + 1, LEFT + 20, RIGHT - 20)
    y = scale(low, high, BOTTOM, TOP)
    entries = [(COLORS[i % len(COLORS)], name) for i, name in enumerate(curves)]
    parts = svg.legend(LEFT, 74, entries)
    parts += [svg.text(LEFT, TOP - 6, "accuracy, %", fill=svg.GREY)]
    parts += rules(low, high, LEFT, RIGHT, y)
    parts += [
        svg.text(place(math.log(x)), BOTTOM + 16, f"{x:.3g}", text_anchor="middle")
        for x in spaced(xs, place)
    ]
    parts.append(svg.text((LEFT + RIGHT) / 2, BOTTOM + 36, across, text_anchor="middle"))
    if base is not None:
        parts.append(svg.rule(LEFT, y(base), RIGHT, y(base), svg.GREY, stroke_dasharray="4 4"))
    for (color, name), points in zip(entries, curves.values(), strict=True):
        where = [(place(math.log(x)), y(value)) for x, value in points]
        parts.append(curve(where, color, name))
        for (cx, cy), (x, value) in zip(where, points, strict=True):
            tip = svg.tooltip(f"{name}: {value:.2f} % at {x:.4g}")
            parts.append(svg.element("circle", tip, cx=cx, cy=cy, r=3.0, fill=color))
    return svg.page(title, subtitle, parts)


def spaced(xs: Sequence[float], place: Scale, apart: float = 36.0) -> list[float]:
    """Those whose labels do not touch."""
    found: list[float] = []
    for x in xs:
        if not found or place(math.log(x)) - place(math.log(found[-1])) >= apart:
            found.append(x)
    return found
