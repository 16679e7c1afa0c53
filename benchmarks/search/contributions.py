"""Pictures of contributions: gains of biases, and gains of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from whet.labs.search.candidate import RATIOS, Contributions
from whet.report import svg

LEFT, RIGHT, TOP, BOTTOM = 64.0, svg.WIDTH - 24.0, 84.0, svg.HEIGHT - 54.0
SHADES = ("#f3d08a", "#e8a33d", "#c66b2b", "#7a2f1d")  # of the fractions, small to whole
BLUE = "#34699a"
Scale = tuple[float, float]


class Axes:
    """A frame with a scale on each side."""

    def __init__(self, x: Scale, y: Scale) -> None:
        self.xs, self.ys = x, y

    def x(self, value: float) -> float:
        low, high = self.xs
        return LEFT + (RIGHT - LEFT) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.ys
        return BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low)

    def rules(self) -> list[str]:
        low, high = self.ys
        step = svg.ticks(high - low, 8)[1]
        first = math.ceil(low / step)
        parts = []
        for i in range(first, math.floor(high / step) + 1):
            y = self.y(i * step)
            parts.append(svg.rule(LEFT, y, RIGHT, y, svg.GREY if i == 0 else svg.RULE))
            parts.append(svg.text(LEFT - 8, y + 4, f"{i * step:+.6g}", text_anchor="end"))
        return parts


def spread(numbers: Sequence[float]) -> Scale:
    """From the lowest to the highest, with 0 and some room."""
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def words_of(gains: Contributions) -> str:
    if gains.measure == "accuracy":
        return "points of accuracy on held-out samples"
    return f"by {gains.measure}"


def biases_svg(gains: Contributions) -> str:
    """What training the last k biases gains over the head alone, for each k."""
    axes = Axes((0.0, max(len(gains.biases) - 1, 1)), spread(gains.biases))
    points = [(axes.x(k), axes.y(gain)) for k, gain in enumerate(gains.biases)]
    parts = axes.rules()
    path = " ".join(f"{svg.number(x)},{svg.number(y)}" for x, y in points)
    parts.append(svg.element("polyline", points=path, fill="none", stroke=BLUE, stroke_width=2))
    for k, (x, y) in enumerate(points):
        title = svg.tooltip(f"last {k} biases: {gains.biases[k]:+.3g}")
        parts.append(svg.element("circle", title, cx=x, cy=y, r=3.5, fill=BLUE))
        if k % 5 == 0:
            parts.append(svg.text(x, BOTTOM + 18, str(k), text_anchor="middle"))
    parts.append(svg.text(RIGHT, BOTTOM + 38, "biases that train, from the last one on",
                          text_anchor="end", fill=svg.GREY))  # fmt: skip
    about = f"gain over the head alone, {words_of(gains)}"
    return svg.page("What the last biases gain", about, parts)


def weights_svg(gains: Contributions) -> str:
    """What each layer's weights gain on top of the biases from there on, by fraction."""
    layers = max(len(gains.layers) - 1, 1 + max((i for i, _ in gains.weights), default=0))
    axes = Axes((0.0, float(layers)), spread([*gains.weights.values(), 0.0]))
    parts = axes.rules()
    width = (RIGHT - LEFT) / layers
    for (layer, ratio), gain in gains.weights.items():
        shade = min(range(len(RATIOS)), key=lambda i: abs(RATIOS[i] - ratio))
        x = axes.x(layer) + width * (0.1 + 0.2 * shade)
        top, bottom = sorted((axes.y(gain), axes.y(0.0)))
        name = gains.layers[layer] if layer < len(gains.layers) else f"layer {layer}"
        title = svg.tooltip(f"{name}, {ratio:g} of its channels: {gain:+.3g}")
        bar = (x, top, 0.19 * width, max(bottom - top, 0.5))
        parts.append(svg.rect(*bar, title, fill=SHADES[shade]))
    for layer in range(0, layers, 2 if layers < 60 else 5):
        middle = axes.x(layer + 0.5)
        parts.append(svg.text(middle, BOTTOM + 18, str(layer), text_anchor="middle"))
    parts.append(svg.text(RIGHT, BOTTOM + 38, "layer, in the order of the forward pass",
                          text_anchor="end", fill=svg.GREY))  # fmt: skip
    entries = [(c, f"{r:g} of the input channels") for c, r in zip(SHADES, RATIOS, strict=True)]
    parts += svg.legend(LEFT, 68, entries)
    about = f"gain on top of all biases from that layer on, {words_of(gains)}"
    return svg.page("What each layer's weights gain", about, parts)
