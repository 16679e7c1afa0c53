"""The picture of the search study: for each budget a dot for each way to choose a scheme."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from whet.report import svg

COLORS = {
    "searched": "#c2313d",
    "published": "#34699a",
    "last blocks": "#e8a33d",
    "biases": "#4f9d69",
    "random": "#b8b8b8",
    "full": "#222222",
}


def accuracy_svg(groups: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Means, with a line from the lowest to the highest; random schemes are all there."""
    left, right, top, bottom = 50.0, svg.WIDTH - 20.0, 92.0, svg.HEIGHT - 64.0
    every = [s for column in groups.values() for found in column.values() for s in found]
    low, high = 2 * math.floor(sorted(every)[len(every) // 50] / 2), 2 * math.ceil(max(every) / 2)
    width = (right - left) / len(groups)

    def y(percent: float) -> float:
        return bottom - (bottom - top) * (max(percent, low) - low) / (high - low)

    parts = svg.legend(left, 70, [(color, name) for name, color in COLORS.items()])
    for tick in range(low, high + 1, 2 if high - low < 30 else 5):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.RULE))
        parts.append(svg.text(left - 7, y(tick) + 4, f"{tick} %", text_anchor="end"))
    for i, (title, column) in enumerate(groups.items()):
        for k, (name, color) in enumerate(COLORS.items()):
            if name not in column:
                continue
            found = column[name]
            x = left + width * (i + (k + 1) / (len(COLORS) + 1))
            words = f"{title}, {name}: {statistics.mean(found):.1f} ({len(found)})"
            parts.append(svg.rule(x, y(min(found)), x, y(max(found)), color, stroke_width=2))
            dots = (
                [*found, statistics.mean(found)] if name == "random" else [statistics.mean(found)]
            )
            for j, value in enumerate(dots):
                radius = 2.0 if name == "random" and j < len(found) else 5.0
                spot = {"cx": x, "cy": y(value), "r": radius}
                parts.append(svg.element("circle", svg.tooltip(words), fill=color, **spot))
        net, data, word = title.split(", ")
        middle = left + (i + 0.5) * width
        for line, text in enumerate((word, net, data)):
            parts.append(svg.text(middle, bottom + 16 + 15 * line, text, text_anchor="middle"))
        if i:
            edge = left + i * width
            parts.append(svg.rule(edge, top, edge, bottom, svg.RULE))
    about = "percent of the test pictures; each column is one budget of RAM"
    return svg.page("Schemes of the same memory", about, parts)
