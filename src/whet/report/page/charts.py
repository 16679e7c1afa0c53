"""Charts of a report, by Matplotlib, as SVG that takes the colours of the page it is in."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import WhetError
from ..layers import Layer
from ..program import kib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What Matplotlib is told to draw with, and the variable of page.css that replaces it.
INK, FAINT, RULE, BACK = "#010101", "#010102", "#010103", "#010104"
KEPT, PASSING, COTANGENT, PARAMETER = "#010105", "#010106", "#010107", "#010108"
WEIGHT, OTHER = "#010109", "#01010a"
VARIABLES = {
    INK: "ink", FAINT: "faint", RULE: "rule", BACK: "back", KEPT: "kept", PASSING: "passing",
    COTANGENT: "cotangent", PARAMETER: "parameter", WEIGHT: "weight", OTHER: "scratch",
}  # fmt: skip
LINES = (KEPT, PARAMETER, WEIGHT, COTANGENT, PASSING)
STYLE = {
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # names are not formulas
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}
WIDTH = 6.2  # inches of 72 points: as wide as the page on a phone, twice that beside each other
ROWS = 40  # of a chart; the smallest layers share one


def library() -> Any:
    """Matplotlib, without a display."""
    try:
        import matplotlib
        from matplotlib import figure  # noqa: F401
    except ImportError as error:
        raise WhetError(
            "a report as HTML needs Matplotlib", why=str(error), try_="pip install matplotlib"
        ) from error
    return matplotlib


def drawn(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def svg_of(figure: Figure, name: str, words: str) -> str:
    """The figure as an element of a page: no prolog, no metadata, no rules for the whole page."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    out = io.StringIO()
    with library().rc_context({"svg.hashsalt": name}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(
        r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", text
    )  # markers and clip paths are referred to
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    text = re.sub(r" ?font-family: [^;\"]*;?", "", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{words}"', 1)


# Title -> the size of its unit, and the parts of a bar.
LAYER_CHARTS = {
    "million multiply-accumulates": (1e6, (
        ("forward_macs", "forward", KEPT), ("backward_macs", "backward", COTANGENT))),
    "KiB": (1024, (
        ("kept_bytes", "kept", KEPT), ("gradient_bytes", "gradients", PARAMETER),
        ("trained_bytes", "trained weights", WEIGHT), ("frozen_bytes", "frozen weights", OTHER))),
}  # fmt: skip


def layer_charts(found: Sequence[Layer]) -> list[str]:
    """Multiply-accumulates, and bytes, of every layer, in forward order from above."""
    rows = shown(found)
    charts = []
    for title, (unit, parts) in LAYER_CHARTS.items():
        with library().rc_context(STYLE):
            figure, axes = drawn(0.8 + 0.2 * len(rows))
            stacked(axes, rows, unit, parts)
            axes.set_title(title, pad=24)
            charts.append(svg_of(figure, title, f"Layers: {title}"))
    return charts


def shown(found: Sequence[Layer]) -> list[tuple[str, Mapping[str, int]]]:
    """The layers by name, those that cost least as one if there are many."""
    numbers = [vars(layer) for layer in found]
    weights = [n["forward_macs"] + n["backward_macs"] + n["kept_bytes"] for n in numbers]
    order = sorted(range(len(found)), key=lambda i: -weights[i])[:ROWS]
    rows: list[tuple[str, Mapping[str, int]]] = [
        (shortened(found[i].label), numbers[i]) for i in sorted(order)
    ]
    if rest := sorted(set(range(len(found))) - set(order)):
        keys = [key for key, value in numbers[0].items() if isinstance(value, int)]
        total = {key: sum(numbers[i][key] for i in rest) for key in keys}
        rows.append((f"{len(rest)} others", total))
    return rows


def shortened(name: str) -> str:
    return name if len(name) <= 26 else f"…{name[-25:]}"


def stacked(
    axes: Axes,
    rows: Sequence[tuple[str, Mapping[str, int]]],
    unit: float,
    parts: Sequence[tuple[str, str, str]],
) -> None:
    """Horizontal bars, one part after the other."""
    at = [0.0] * len(rows)
    for key, words, color in parts:
        sizes = [numbers[key] / unit for _, numbers in rows]
        if any(sizes):
            axes.barh(range(len(rows)), sizes, left=at, height=0.72, color=color, label=words)
        at = [a + b for a, b in zip(at, sizes, strict=True)]
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.spines[["left", "bottom"]].set_visible(False)
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0), "ncols": 4}
    if axes.containers:
        axes.legend(**above, fontsize=9, handlelength=1, columnspacing=1.2, borderaxespad=0.2)


def ladder_chart(arena: int, without: Mapping[str, int]) -> str:
    """The arena with every pass, and without each of those that matter."""
    rows = [("every pass", arena), *sorted(without.items(), key=lambda item: item[1])]
    with library().rc_context(STYLE):
        figure, axes = drawn(0.7 + 0.26 * len(rows))
        sizes = [size / 1024 for _, size in rows]
        colors = [KEPT, *[PASSING] * len(without)]
        bars = axes.barh(range(len(rows)), sizes, height=0.68, color=colors)
        words = [f"{kib(size)}" + (f"  {size / arena:.2f}x" if i and arena else "")
                 for i, (_, size) in enumerate(rows)]  # fmt: skip
        axes.bar_label(bars, words, padding=4, color=FAINT, fontsize=9)
        axes.set_yticks(range(len(rows)), [rows[0][0], *(f"without {n}" for n, _ in rows[1:])])
        axes.set_xlim(0, 1.25 * max(sizes))
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("arena, KiB")
        return svg_of(figure, "ladder", "The arena without each of the passes")


def history_charts(history: Mapping[str, Sequence[float]]) -> list[str]:
    """Curves over epochs: the losses, then everything else."""
    losses = {name: values for name, values in history.items() if "loss" in name}
    others = {name: values for name, values in history.items() if name not in losses}
    charts = []
    for words, group in (("loss", losses), ("metrics", others)):
        if group:
            with library().rc_context(STYLE):
                figure, axes = drawn(3.0)
                curves(axes, group)
                axes.set_title(words)
                charts.append(svg_of(figure, words, f"Training: {words} over the epochs"))
    return charts


def curves(axes: Axes, group: Mapping[str, Sequence[float]]) -> None:
    for i, (name, values) in enumerate(group.items()):
        epochs, color = range(1, len(values) + 1), LINES[i % len(LINES)]
        axes.plot(epochs, values, label=name, color=color, marker="o", markersize=3, linewidth=1.6)
    axes.locator_params(axis="x", integer=True)
    axes.grid(axis="y")
    axes.set_xlabel("epoch")
    axes.legend(fontsize=9)
