"""Does int8 training converge? Accuracy after training whet's own C programs on real pictures.

    python benchmarks/qas.py                         everything; writes benchmarks/qas.md, .svg
    python benchmarks/qas.py recipe                  what the recipe was chosen by
    python benchmarks/qas.py ratio                   weights against gradients only, a minute
    python benchmarks/qas.py train --only mcunet-5fps,flowers102,fp32,carry8
    python benchmarks/qas.py page                    what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see pictures.py). A cell is one network,
picture set, way to train and seed; it takes about a minute of a core, all of them two hours. Cells
run in `--processes` at once, and each result is appended to `--results`, qas.jsonl beside this file
unless said otherwise, when it is there: a run that was stopped goes on where it was, and what is
there already is not trained again. Every cell has the same recipe; only Adam has a rate of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pictures
import qas_ratio
import qas_study
from page import processor, table
from pictures import CLASSES, WINDOWS
from qas_ratio import Ratios
from qas_study import (
    BACKBONES,
    FIRST,
    PUBLISHED,
    VARIANTS,
    Cell,
    Recipe,
    append,
    read_results,
    run_cells,
)

from whet.report import svg

HERE = Path(__file__).resolve().parent

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


def picture(scores: Scores, about: str) -> str:
    """A dot for each mean, a line from the lowest seed to the highest; what failed is left out."""
    learned = [
        v for v in VARIANTS
        if any(v in column for column in scores.values())
        and all(min(column[v]) > LEAST for column in scores.values() if v in column)
    ]  # fmt: skip
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


def score_table(scores: Scores, variants: Sequence[str]) -> str:
    rows = [
        [VARIANTS[v].title, *(summary(c[v]) if v in c else "-" for c in scores.values())]
        for v in variants
        if any(v in column for column in scores.values())
    ]
    return table(["way to train", *(f"{data}, {net}" for data, net in scores)], rows)


def bytes_table(cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]) -> str:
    """What a way to train holds in memory for the parameters that train, by backbone.

    Of one picture set: the classifier of another has another size.
    """
    kept: dict[str, dict[str, float]] = {}
    for cell in cells:
        if cell.key in results and cell.data == FIRST_DATA:
            kib = sum(results[cell.key]["bytes"].values()) / 1024
            kept.setdefault(cell.variant, {})[cell.backbone] = kib
    nets = sorted({net for row in kept.values() for net in row})
    rows = [
        [VARIANTS[v].title, *(f"{row[net]:,.1f}" if net in row else "-" for net in nets)]
        for v, row in kept.items()
    ]
    return table([f"KiB of trained parameters and state, {FIRST_DATA}", *nets], rows)


def recipe_table(recipe: Recipe, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Accuracy of fp32 on held-out pictures by optimizer, windows and rate, with the sets' mean."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for cell in qas_study.candidates(recipe):
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


def page(asked: argparse.Namespace, scores: Scores, found: Ratios) -> str:
    r = asked.recipe
    scheme = "the published scheme of about 100 KB" if asked.scheme == PUBLISHED else asked.scheme
    cells, results = cells_of(asked), read_results(asked.results)
    places = sorted({results[cell.key]["processor"] for cell in cells if cell.key in results})
    parts = [
        "# Training in int8, measured\n\nMade by `python benchmarks/qas.py`: C programs that "
        f"whet wrote, trained on {' and '.join(places) or processor()}.\n"
    ]
    if scores:
        seeds = max(len(found) for column in scores.values() for found in column.values())
        parts.append(
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
            "Without QAS hardly an integer moves, and the classifier alone learns. To truncate is "
            "what the published\nprogram does; to the nearest, carry and copy are ours.\n"
        )
        parts.append(f"![accuracies]({asked.out.stem}.svg)\n")
        parts += [score_table(scores, list(VARIANTS)), bytes_table(cells, results)]
        if chosen := recipe_table(r, results):
            parts.append(
                f"## How the recipe was chosen\n\nfp32 on {FIRST}, trained on three quarters of "
                "the training pictures and judged on the fourth (percent): the rates and\nthe "
                "windows of all cells are those with the best mean of both sets. No test picture "
                "was looked at for it. Windows are\n"
                + "; or ".join(f"*{name}*: {WINDOW_WORDS[name]}" for name in WINDOWS)
                + ".\nA network that is taught on windows whose pixels were made anew is judged "
                "on sharper and smaller things than those it was\ntaught on.\n"
            )
            parts.append(chosen)
    if found:
        parts.append(
            "## Parameters against their gradients\n\nA step changes a parameter by its gradient "
            "times the rate, so one rate fits all layers only if this ratio\nis about the same "
            "for all. Integers have others: a weight is larger by 1 / scale, its gradient smaller "
            "by scale.\nQAS multiplies the gradient by scale^-2, which gives about the ratio of "
            f"fp32 (arXiv:2206.15472). {asked.ratio_backbone} before\ntraining, "
            f"{asked.batches} batches of {FIRST_DATA}, everything trained; channels with a "
            f"scale below {qas_ratio.DEAD:g} are left out.\n"
        )
        parts += [f"![ratios]({asked.out.stem}_ratio.svg)\n", qas_ratio.ratio_table(found)]
    return "\n".join(parts)


# --- Arguments ------------------------------------------------------------------------------------

PARTS = ("recipe", "train", "ratio", "page")
WINDOW_WORDS = {
    "cut": f"cut out of the stored {pictures.STORED} x {pictures.STORED} as they are",
    "resized": f"of {pictures.LEAST:.0%} of a picture's area or more, made that large",
}
FIRST_DATA = "flowers102"


def arguments() -> argparse.Namespace:
    recipe = Recipe()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="sets, backbones, ways to train, with commas")
    parser.add_argument("--scheme", default=PUBLISHED, help="also last-2, last, full, ...")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--windows", default=recipe.windows, choices=WINDOWS)
    for name in ("epochs", "warm_up", "batch", "sgd", "adam", "thin"):
        value = getattr(recipe, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, default=8, help="for the ratios")
    parser.add_argument("--ratio-backbone", default=FIRST, choices=BACKBONES)
    parser.add_argument("--results", type=Path, default=HERE / "qas.jsonl")
    parser.add_argument("--out", type=Path, default=HERE / "qas.md", help="the page")
    found = parser.parse_args()
    found.only = set(filter(None, found.only.split(",")))
    if wrong := found.only - set().union(*ASPECTS):
        known = "; ".join(", ".join(names) for names in ASPECTS)
        parser.error(f"there is no {', '.join(sorted(wrong))}; there are: {known}")
    if wrong := set(found.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(wrong)}; there are: {', '.join(PARTS)}")
    found.parts = found.parts or list(PARTS)
    words = {word: value for word, value in vars(found).items() if word in asdict(recipe)}
    found.recipe = Recipe(**words)
    return found


ASPECTS = (CLASSES, BACKBONES, VARIANTS)


def cells_of(asked: argparse.Namespace) -> list[Cell]:
    """The plan's, or those of them that have what was asked for in every aspect named."""
    wanted = [asked.only & set(names) for names in ASPECTS]
    return [
        cell
        for cell in qas_study.planned(asked.scheme, asked.recipe, asked.seeds)
        if all(
            not some or word in some
            for some, word in zip(wanted, (cell.data, cell.backbone, cell.variant), strict=True)
        )
    ]


def ratio_key(asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "ratio": asked.ratio_backbone,
        "data": FIRST_DATA,
        "batches": asked.batches,
        "batch": asked.batch,
    }


def main() -> None:
    asked = arguments()
    key = json.dumps(ratio_key(asked), sort_keys=True)
    if "ratio" in asked.parts and key not in read_results(asked.results):
        found = qas_ratio.ratios(asked.ratio_backbone, FIRST_DATA, asked.batches, asked.recipe)
        append(asked.results, {"cell": ratio_key(asked), "ratios": found})
    if "recipe" in asked.parts:
        run_cells(qas_study.candidates(asked.recipe), asked.results, asked.processes)
    if "train" in asked.parts:
        run_cells(cells_of(asked), asked.results, asked.processes)
    results = read_results(asked.results)
    scores = scores_of(cells_of(asked), results)
    measured: Ratios = results.get(key, {}).get("ratios", {})
    text = page(asked, scores, measured)
    print(text)
    if "page" not in asked.parts:
        return
    asked.out.write_text(text)
    if scores:
        about = f"percent of the test pictures; {asked.epochs} epochs, one recipe for all"
        asked.out.with_suffix(".svg").write_text(picture(scores, about))
    if measured:
        drawn = qas_ratio.ratio_picture(measured, asked.ratio_backbone, FIRST_DATA)
        asked.out.with_name(f"{asked.out.stem}_ratio.svg").write_text(drawn)


if __name__ == "__main__":
    main()
