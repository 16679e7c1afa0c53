"""Curves over numbers, in panels side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import svg

COLORS = ("#34699a", "#c2313d", "#e8a33d", "#4f9d69", "#7b5ea7", "#222222", "#b8b8b8", "#00838f")
LEFT, RIGHT, TOP, BOTTOM = 70.0, svg.WIDTH - 30.0, 96.0, svg.HEIGHT - 52.0
APART = 80.0  # between panels
Points = Sequence[tuple[float, float]]
Scale = Callable[[float], float]


def curve(points: Points, color: str, words: str) -> str:
    text = " ".join(f"{svg.number(x)},{svg.number(y)}" for x, y in points)
    return svg.element(
        "polyline", svg.tooltip(words), points=text, fill="none", stroke=color, stroke_width=2.0
    )


def scale(low: float, high: float, first: float, last: float) -> Scale:
    return lambda value: first + (last - first) * (value - low) / (high - low)


def rules(low: float, high: float, left: float, right: float, y: Scale) -> list[str]:
    """Horizontal rules with their numbers."""
    parts = []
    for tick in svg.ticks(high - low, 6):
        at = y(low + tick)
        parts.append(svg.rule(left, at, right, at, svg.RULE))
        parts.append(svg.text(left - 6, at + 4, f"{low + tick:,.6g}", text_anchor="end"))
    return parts


def around(values: Sequence[float]) -> tuple[float, float]:
    """Round numbers around these."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    step = svg.ticks(span, 5)[1]
    bottom = step * math.floor(low / step)
    return bottom, max(step * math.ceil(high / step), bottom + step)


def curves_svg(
    panels: Mapping[str, Mapping[str, Points]],
    title: str,
    subtitle: str,
    across: str,
    log: bool = False,
    marks: Mapping[float, str] | None = None,
) -> str:
    """A panel for each quantity, with its curves. Points that are not finite are left out.

    `log` is for the axis across; `marks` are places on it, with a word each.
    """
    place = (lambda x: math.log10(x)) if log else float
    drawn = {
        name: {n: finite((place(x), y) for x, y in points) for n, points in curves.items()}
        for name, curves in panels.items()
    }
    drawn = {name: curves for name, curves in drawn.items() if any(curves.values())}
    width = (RIGHT - LEFT - APART * max(len(drawn) - 1, 0)) / max(len(drawn), 1)
    parts: list[str] = []
    for i, (name, curves) in enumerate(drawn.items()):
        left = LEFT + i * (width + APART)
        parts += panel(name, curves, (left, left + width), across, log)
        x = scale(*wide(curves), left, left + width)
        for at, word in (marks or {}).items():
            parts.append(svg.rule(x(place(at)), TOP, x(place(at)), BOTTOM, svg.GREY,
                                  stroke_dasharray="4 4"))  # fmt: skip
            parts.append(svg.text(x(place(at)) + 4, TOP + 12, word, fill=svg.GREY))
    return svg.page(title, subtitle, parts)


def finite(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def wide(curves: Mapping[str, Points]) -> tuple[float, float]:
    """From the first to the last x of all."""
    xs = [x for points in curves.values() for x, _ in points]
    return (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 0.5, max(xs) + 0.5)


def panel(
    name: str, curves: Mapping[str, Points], sides: tuple[float, float], across: str, log: bool
) -> list[str]:
    left, right = sides
    low, high = around([y for points in curves.values() for _, y in points])
    first, last = wide(curves)
    x, y = scale(first, last, left, right), scale(low, high, BOTTOM, TOP)
    entries = [(COLORS[i % len(COLORS)], n) for i, n in enumerate(curves)]
    parts = [*svg.legend(left, 74, entries), *rules(low, high, left, right, y)]
    for at in whole_numbers(first, last):
        words = f"{10.0**at:g}" if log else f"{at:g}"
        parts.append(svg.text(x(at), BOTTOM + 16, words, text_anchor="middle"))
    parts.append(svg.text((left + right) / 2, BOTTOM + 36, across, text_anchor="middle"))
    for (color, n), points in zip(entries, curves.values(), strict=True):
        where = [(x(a), y(b)) for a, b in points]
        parts.append(curve(where, color, n))
        if len(points) == 1:
            parts.append(svg.element("circle", cx=where[0][0], cy=where[0][1], r=3.0, fill=color))
    return parts


def whole_numbers(first: float, last: float, most: int = 8) -> list[float]:
    """At most this many, evenly apart."""
    low, high = math.ceil(first), math.floor(last)
    step = max(1, math.ceil((high - low) / most))
    return [float(at) for at in range(low, high + 1, step)]
