"""Curves on axes, shared by the plots of labs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...report import svg

COLORS = ("#34699a", "#c2313d", "#e8a33d", "#4f9d69", "#7b5ea7", "#222222", "#b8b8b8", "#00838f")
LEFT, RIGHT, TOP, BOTTOM = 70.0, svg.WIDTH - 30.0, 96.0, svg.HEIGHT - 52.0
Points = Sequence[tuple[float, float]]
Scale = Callable[[float], float]


def curve(points: Points, color: str, words: str) -> str:
    text = " ".join(f"{svg.number(x)},{svg.number(y)}" for x, y in points)
    return svg.element(
        "polyline", svg.tooltip(words), points=text, fill="none", stroke=color, stroke_width=2.0
    )


def scale(low: float, high: float, first: float, last: float) -> Scale:
    return lambda value: first + (last - first) * (value - low) / (high - low)


def percent_rules(low: float, high: float, left: float, right: float, y: Scale) -> list[str]:
    """Horizontal rules with their numbers."""
    parts = []
    for tick in svg.ticks(high - low, 6):
        at = y(low + tick)
        parts.append(svg.rule(left, at, right, at, svg.RULE))
        parts.append(svg.text(left - 6, at + 4, f"{low + tick:,.6g}", text_anchor="end"))
    return parts


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
    parts += percent_rules(low, high, LEFT, RIGHT, y)
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
