"""Pictures of an analysis: gains of biases, gains of weights, and what budgets buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...report import kib, svg
from .candidate import RATIOS, Contributions, Outcome

if TYPE_CHECKING:
    from .report import Row

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

    def rules(self, unit: str) -> list[str]:
        low, high = self.ys
        step = svg.ticks(high - low, 8)[1]
        first = math.ceil(low / step)
        parts = []
        for i in range(first, math.floor(high / step) + 1):
            y = self.y(i * step)
            parts.append(svg.rule(LEFT, y, RIGHT, y, svg.GREY if i == 0 else svg.RULE))
            words = f"{i * step:+.6g}" if unit == "gain" else f"{i * step:.6g}"
            parts.append(svg.text(LEFT - 8, y + 4, words, text_anchor="end"))
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
    parts = axes.rules("gain")
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
    parts = axes.rules("gain")
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


def budgets_svg(found: Sequence[Row]) -> str:
    """RAM against accuracy: what was found, and what it was chosen from."""
    chosen = [(f.ram, level(f.outcome), f"{kib(f.budget)}: {f.candidate}") for f in found
              if f.outcome is not None]  # fmt: skip
    rivals = [(r.ram, level(r.outcome), f"{kib(f.budget)}, {name}: {r.candidate}") for f in found
              for name, r in f.finalists.items()]  # fmt: skip
    every = [*chosen, *rivals] or [(1, 0.0, "")]
    rams = [float(r) for r, _, _ in every] + [float(f.budget) for f in found]
    levels = [y for _, y, _ in every]
    room = 0.08 * (max(levels) - min(levels)) or 1.0
    far = 0.08 * (max(rams) - min(rams)) or 0.1 * max(rams)
    axes = Axes((min(rams) - far, max(rams) + far), (min(levels) - room, max(levels) + room))
    parts = axes.rules("level")
    best = sorted(chosen)
    line = " ".join(f"{svg.number(axes.x(r))},{svg.number(axes.y(y))}" for r, y, _ in best)
    parts.append(svg.element("polyline", points=line, fill="none", stroke=BLUE, stroke_width=2))
    for color, points, radius in (("#b0b0b0", rivals, 4.0), (BLUE, chosen, 6.0)):
        for ram, y, words in points:
            spot = {"cx": axes.x(ram), "cy": axes.y(y), "r": radius}
            parts.append(svg.element("circle", svg.tooltip(words), fill=color, **spot))
    for f in found:
        x = axes.x(f.budget)
        parts.append(svg.rule(x, TOP, x, BOTTOM, svg.RULE, stroke_dasharray="4 3"))
        parts.append(svg.text(x, BOTTOM + 18, kib(f.budget), text_anchor="middle"))
    parts += svg.legend(LEFT, 68, [(BLUE, "chosen"), ("#b0b0b0", "also tried")])
    classes = not any(f.outcome is not None and math.isnan(f.outcome.accuracy) for f in found)
    about = "percent of held-out samples" if classes else "loss on held-out samples, downwards"
    return svg.page("What a budget buys", f"{about}, against bytes of RAM", parts)


def level(outcome: Outcome | None) -> float:
    """Upwards is better."""
    if outcome is None:
        return 0.0
    return -outcome.loss if math.isnan(outcome.accuracy) else outcome.accuracy
