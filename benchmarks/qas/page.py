"""The page of the int8 study: accuracies, drawn and in tables, and what they were trained by."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.common import pictures
from benchmarks.common.page import processor, table
from benchmarks.common.pictures import CLASSES, WINDOWS
from benchmarks.qas import ratio
from benchmarks.qas.ratio import Ratios
from benchmarks.qas.study import FIRST, PUBLISHED, VARIANTS, Cell, Recipe, candidates
from whet.report import svg

WINDOW_WORDS = {
    "cut": f"cut out of the stored {pictures.STORED} x {pictures.STORED} as they are",
    "resized": f"of {pictures.LEAST:.0%} of a picture's area or more, made that large",
}
FIRST_DATA = "flowers102"
PROBES = "76.4 % (Flowers-102) and 69.4 % (Pets-37)"
PAPER = 88.8  # percent

# --- The picture of accuracies --------------------------------------------------------------------

LEAST, IN_A_ROW = 40.0, 3  # percent that a way to train must reach to be drawn; titles in a row
Scores = dict[tuple[str, str], dict[str, list[float]]]  # by (data, backbone), variant


def scores_of(cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]) -> Scores:
    found: Scores = {}
    for cell in cells:
        if cell.key in results:
            column = found.setdefault((cell.data, cell.backbone), {})
            column.setdefault(cell.variant, []).append(results[cell.key]["accuracy"])
    return found


def drawn(scores: Scores) -> list[str]:
    """The ways to train that are in the picture: what failed somewhere is left out."""
    return [
        v for v in VARIANTS
        if any(v in column for column in scores.values())
        and all(min(column[v]) > LEAST for column in scores.values() if v in column)
    ]  # fmt: skip


def picture(scores: Scores, about: str) -> str:
    """A dot for each mean, a line from the lowest seed to the highest."""
    learned = drawn(scores)
    scores = {
        place: {v: column[v] for v in learned if v in column} for place, column in scores.items()
    }
    left, right, bottom = 50.0, svg.WIDTH - 20.0, svg.HEIGHT - 50.0
    top = 71.0 + 17 * math.ceil(len(learned) / IN_A_ROW)  # below the legend
    every = [s for column in scores.values() for found in column.values() for s in found]
    low, high = 5 * math.floor(min(every) / 5), 5 * math.ceil(max(every) / 5 + 1e-9)
    group = (right - left) / len(scores)

    def y(percent: float) -> float:
        return bottom - (bottom - top) * (percent - low) / (high - low)

    titles = [(VARIANTS[v].color, VARIANTS[v].title) for v in learned]
    parts = []
    for row, start in enumerate(range(0, len(titles), IN_A_ROW)):
        parts += svg.legend(left, 68 + 17 * row, titles[start : start + IN_A_ROW])
    for tick in range(low, high + 1, 5):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.RULE))
        parts.append(svg.text(left - 7, y(tick) + 4, f"{tick} %", text_anchor="end"))
    for i, ((data, backbone), column) in enumerate(scores.items()):
        for k, (variant, found) in enumerate(column.items()):
            color = VARIANTS[variant].color
            x = left + group * (i + (k + 1) / (len(column) + 1))
            words = f"{data}, {backbone}, {VARIANTS[variant].title}: {summary(found)}"
            dot = {"cx": x, "cy": y(statistics.mean(found)), "r": 5.0}
            parts.append(svg.rule(x, y(min(found)), x, y(max(found)), color, stroke_width=2))
            parts.append(svg.element("circle", svg.tooltip(words), fill=color, **dot))
        middle = left + (i + 0.5) * group
        parts.append(svg.text(middle, bottom + 18, backbone, text_anchor="middle"))
        parts.append(svg.text(middle, bottom + 34, data, text_anchor="middle", fill=svg.GREY))
        if i:
            edge = left + i * group
            parts.append(svg.rule(edge, top, edge, bottom, svg.RULE))
    return svg.page("Accuracy after training in int8", about, parts)


# --- The page -------------------------------------------------------------------------------------


def summary(found: Sequence[float]) -> str:
    """Mean, and standard deviation between seeds where there are several."""
    mean = f"{statistics.mean(found):.1f}"
    return f"{mean} ± {statistics.stdev(found):.1f}" if len(found) > 1 else mean


def score_table(scores: Scores, stopped: set[tuple[str, str, str]]) -> str:
    """A mean of runs of which some did not end has a mark."""
    rows = []
    for v in VARIANTS:
        marks = {place: "†" if (*place, v) in stopped else "" for place in scores}
        cells = [summary(c[v]) + marks[p] if v in c else "-" for p, c in scores.items()]
        if set(cells) != {"-"}:
            rows.append([VARIANTS[v].title, *cells])
    return table(["way to train", *(f"{data}, {net}" for data, net in scores)], rows)


def stopped_of(
    cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]
) -> set[tuple[str, str, str]]:
    """(data, backbone, variant) where the loss of some seed was no number any more."""
    return {
        (cell.data, cell.backbone, cell.variant)
        for cell in cells
        if cell.key in results and not results[cell.key]["finished"]
    }


@dataclass(frozen=True)
class Gap:
    """How far a way to train is below fp32, in points, and how far seeds of both are apart."""

    points: float
    own: float
    other: float

    @property
    def recovered(self) -> bool:
        """No further below than the standard deviation of a difference between two runs."""
        return self.points <= math.hypot(self.own, self.other)

    def __str__(self) -> str:
        points = f"{round(self.points, 1) + 0.0:.1f}"  # no -0.0
        return f"{f'**{points}**' if self.recovered else points} ({self.own:.1f}, {self.other:.1f})"


def gap_table(scores: Scores) -> str:
    """Of every int8 way with SGD, where it and fp32 have several seeds; else nothing."""
    rows = []
    for variant, way in VARIANTS.items():
        if way.int8 is None or way.adam or not way.learns:
            continue
        gaps = [gap_of(column, variant) for column in scores.values()]
        known = [gap for gap in gaps if gap]
        if known:
            count = f"{sum(gap.recovered for gap in known)} of {len(known)}"
            rows.append([way.title, *(str(gap) if gap else "-" for gap in gaps), count])
    places = [f"{data}, {net}" for data, net in scores]
    return table(["points below fp32, SGD", *places, "within"], rows) if rows else ""


def gap_of(column: Mapping[str, Sequence[float]], variant: str) -> Gap | None:
    own, other = column.get(variant, ()), column.get("fp32", ())
    if min(len(own), len(other)) < 2:
        return None
    below = statistics.mean(other) - statistics.mean(own)
    return Gap(below, statistics.stdev(own), statistics.stdev(other))


def known_elsewhere(scores: Scores) -> str:
    """What others had, and how far fp32 by this recipe is from it."""
    words = (
        f"To compare with: a linear probe on {FIRST}, made apart from this study, without "
        f"augmentation and on a part of the pictures,\nrecognised {PROBES}; the start above is "
        f"such a probe too. Published for {FIRST}\nby the sparse scheme of 100 KB in int8, "
        f"Flowers-102, is {PAPER:.1f} % (arXiv:2206.15472 and its repository): from larger "
        "pictures, with more\naugmentation, in larger batches and for 50 epochs; without "
        "momentum there, too."
    )
    ours = scores.get((FIRST_DATA, FIRST), {}).get("fp32")
    if ours:
        short = PAPER - statistics.mean(ours)
        words += f" By the recipe here, fp32 is {short:.1f} points short of that."
    return words + "\n"


def bytes_table(cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]) -> str:
    """What a way to train holds in memory for the parameters that train, by backbone.

    Of one picture set: the classifier of another has another size.
    """
    kept: dict[str, dict[str, float]] = {}
    there = [cell for cell in cells if cell.key in results]
    data = min((cell.data for cell in there), key=lambda name: name != FIRST_DATA)
    for cell in there:
        if cell.data == data:
            kib = sum(results[cell.key]["bytes"].values()) / 1024
            kept.setdefault(cell.variant, {})[cell.backbone] = kib
    nets = sorted({net for row in kept.values() for net in row})
    rows = [
        [VARIANTS[v].title, *(f"{row[net]:,.1f}" if net in row else "-" for net in nets)]
        for v, row in kept.items()
    ]
    return table([f"KiB of trained parameters and state, {data}", *nets], rows)


def recipe_table(recipe: Recipe, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Accuracy of fp32 on held-out pictures by optimizer, windows and rate, with the sets' mean."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for cell in candidates(recipe):
        if cell.key in results:
            adam, r = VARIANTS[cell.variant].adam, cell.recipe
            row = ("Adam", r.windows, r.adam) if adam else ("SGD", r.windows, r.sgd)
            found.setdefault(row, []).append(results[cell.key]["accuracy"])
    rows = [
        [f"{name}, {windows}, {rate:g}", *(f"{a:.1f}" for a in (*some, statistics.mean(some)))]
        for (name, windows, rate), some in found.items()
        if len(some) == len(CLASSES)
    ]
    return table(["optimizer, windows, rate", *CLASSES, "mean"], rows) if rows else ""


def page(
    asked: argparse.Namespace,
    cells: Sequence[Cell],
    results: Mapping[str, Mapping[str, Any]],
    scores: Scores,
    found: Ratios,
) -> str:
    places = sorted({results[cell.key]["processor"] for cell in cells if cell.key in results})
    parts = [
        "# Training in int8, measured\n\nMade by `python -m benchmarks.qas`: C programs that "
        f"whet wrote, trained on {' and '.join(places) or processor()}.\n"
    ]
    if scores:
        parts += accuracy_parts(asked, scores, cells, results)
        parts.append(bytes_table(cells, results))
        parts += recipe_parts(asked.recipe, results)
    if found:
        parts += ratio_parts(asked, found)
    return "\n".join(parts)


def accuracy_parts(
    asked: argparse.Namespace,
    scores: Scores,
    cells: Sequence[Cell],
    results: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """What was done alike in every cell, then what came out."""
    r = asked.recipe
    scheme = "the published scheme of about 100 KB" if asked.scheme == PUBLISHED else asked.scheme
    seeds = max(len(found) for column in scores.values() for found in column.values())
    words = (
        f"## Accuracy\n\nPercent of the test pictures, mean of up to {seeds} seeds ± standard "
        "deviation; without ± there was one, and a dash\nis a cell that was not run. "
        f"What trains is {scheme}. One recipe for every cell:\n"
        f"{r.epochs} epochs in batches of {r.batch}, {r.warm_up} of them to warm up, "
        "then a cosine to 0;\n"
        f"SGD without momentum at a rate of {r.sgd:g}, Adam at {r.adam:g}; windows of "
        f"{pictures.TAKEN} x {pictures.TAKEN} pixels, {WINDOW_WORDS[r.windows]}, half of them "
        "mirrored.\nAll ways begin with the same classifier, which was taught alone, on the "
        "middles of the training pictures.\nInt8 programs have an fp32 classifier unless the "
        "table says otherwise; ways without a word about rounding round to the nearest.\n"
        "Without QAS steps are too small by the square of a scale: little but the classifier "
        "learns, whether fractions of a step are\nrounded away or kept in an fp32 copy"
        f"{same_losses(cells, results)}. To truncate is what the published\nprogram does; to the "
        f"nearest, carry and copy are ours. A way that is below {LEAST:.0f} % anywhere is not "
        "drawn.\n"
    )
    stopped = stopped_of(cells, results)
    link = ["![accuracies](accuracy.svg)\n"] if drawn(scores) else []
    note = ["† A run stopped early, because its loss was no number any more.\n"] if stopped else []
    parts = [words, *link, score_table(scores, stopped), *note, known_elsewhere(scores)]
    return parts + gap_parts(scores)


def same_losses(cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of how many runs without QAS the losses are those of the run with an fp32 copy."""
    plain = [cell for cell in cells if cell.variant == "plain"]
    keys = [(cell.key, replace(cell, variant="plain-master").key) for cell in plain]
    pairs = [(a, b) for a, b in keys if a in results and b in results]
    same = sum(results[a]["losses"] == results[b]["losses"] for a, b in pairs)
    return f" (the same loss in every epoch in {same} of {len(pairs)} cells)" if pairs else ""


def gap_parts(scores: Scores) -> list[str]:
    gaps = gap_table(scores)
    words = (
        "How far int8 is below fp32, both by SGD: the difference of the means and, in "
        "brackets, the standard deviations between seeds, of int8\nand of fp32. It is "
        "bold where it is no more than the deviation of a difference between two runs, "
        "the root of the sum of both squares;\nthe last column counts these. Less than 0 "
        "is above fp32, and few seeds give but a rough idea of a deviation.\n"
    )
    return [words, gaps] if gaps else []


def recipe_parts(recipe: Recipe, results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    chosen = recipe_table(recipe, results)
    words = (
        f"## How the recipe was chosen\n\nfp32 on {FIRST}, trained on three quarters of "
        "the training pictures and judged on the fourth (percent): the rates and\nthe "
        "windows of all cells are those with the best mean of both sets. No test picture "
        "was looked at for it. Windows are\n"
        + "; or ".join(f"*{name}*: {WINDOW_WORDS[name]}" for name in WINDOWS)
        + ".\nA network that is taught on windows whose pixels were made anew is judged "
        "on sharper and smaller things than those it was\ntaught on.\n"
    )
    return [words, chosen] if chosen else []


def ratio_parts(asked: argparse.Namespace, found: Ratios) -> list[str]:
    words = (
        "## Parameters against their gradients\n\nA step changes a parameter by its gradient "
        "times the rate, so one rate fits all layers only if this ratio\nis about the same "
        "for all. Integers have others: a weight is larger by 1 / scale, its gradient smaller "
        "by scale.\nQAS multiplies the gradient by scale^-2, which gives about the ratio of "
        f"fp32 (arXiv:2206.15472). {asked.ratio_backbone} before\ntraining, "
        f"{asked.batches} batches of {FIRST_DATA}, everything trained; the classifier is new "
        "(random), not the one that was taught alone.\nChannels with a scale below "
        f"{ratio.DEAD:g} are left out.\n"
    )
    return [words, "![ratios](ratio.svg)\n", ratio.ratio_table(found)]
