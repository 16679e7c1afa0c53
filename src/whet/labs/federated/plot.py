"""Accuracy over rounds, and the bytes that it took, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...report import svg
from ...report.curves import BOTTOM, COLORS, TOP, curve, rules, scale
from ..common.plot import tens
from .loop import History, Round

UNITS = (("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))


def rounds_svg(histories: Mapping[str, History], title: str = "Federated training") -> str:
    """Two panels: accuracy by round, and bytes sent and received until then, by all clients."""
    rounds = {name: history.rounds for name, history in histories.items()}
    every = [r for found in rounds.values() for r in found]
    last = max(max(r.number for r in every), 1)
    middle = svg.WIDTH / 2
    entries = [(COLORS[i % len(COLORS)], name) for i, name in enumerate(rounds)]
    low, high = tens([percent(r) for r in every])
    unit, factor = next(u for u in UNITS if max(map(traffic, every)) >= u[1] or u[1] == 1.0)
    most = max(max(map(traffic, every)) / factor, 1e-9)
    parts = svg.legend(60, 74, entries)
    for left, caption, bottom, top, value, of in (
        (60.0, "accuracy, %", low, high, percent, 1.0),
        (middle + 60, f"{unit} sent and received, all clients", 0, most, traffic, factor),
    ):
        right = left + middle - 90
        x, y = scale(0, last, left, right), scale(bottom, top, BOTTOM, TOP)
        parts += axes(caption, left, right, last, bottom, top)
        for (color, name), found in zip(entries, rounds.values(), strict=True):
            points = [(x(r.number), y(value(r) / of)) for r in found]
            words = f"{name}: {percent(found[-1]):.1f} % after {found[-1].number} rounds"
            parts.append(curve(points, color, words))
    return svg.page(title, summary(rounds), parts)


def axes(
    caption: str, left: float, right: float, last: int, bottom: float, top: float
) -> list[str]:
    """The caption, rules with their numbers, and the rounds below."""
    x, y = scale(0, last, left, right), scale(bottom, top, BOTTOM, TOP)
    parts = [svg.text(left, TOP - 6, caption, fill=svg.GREY)]
    parts += rules(bottom, top, left, right, y)
    for tick in svg.ticks(last, 8):
        if tick == int(tick):
            parts.append(svg.text(x(tick), BOTTOM + 16, f"{tick:g}", text_anchor="middle"))
    return [*parts, svg.text((left + right) / 2, BOTTOM + 34, "round", text_anchor="middle")]


def percent(r: Round) -> float:
    return 100 * r.accuracy


def traffic(r: Round) -> float:
    return r.sent + r.received


def summary(rounds: Mapping[str, Sequence[Round]]) -> str:
    return "; ".join(f"{n}: {percent(found[-1]):.1f} %" for n, found in rounds.items())
