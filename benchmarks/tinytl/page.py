"""The page of the TinyTL study: tables of memory and accuracy, and accuracy drawn over memory."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common.page import table
from benchmarks.common.pictures import CLASSES
from benchmarks.tinytl.study import LARGE, METHODS, NETS, SIDES, Cell, Results
from whet.report import svg

COUNTED = [(batch, adam) for batch in (8, 1) for adam in (False, True)]
Point = tuple[float, float]
Scores = Mapping[tuple[str, str, str, int], Sequence[float]]  # network, pictures, method, side


def memory_key(
    net: str, method: str, side: int, batch: int = 8, adam: bool = True
) -> dict[str, Any]:
    return {"net": net, "method": method, "side": side, "batch": batch, "adam": adam}


def write_page(out: Path, results: Results, cells: Sequence[Cell], steps: int) -> None:
    scores: dict[tuple[str, str, str, int], list[float]] = {}
    for cell in cells:
        if body := results.get(cell.key):
            place = (cell.net, cell.data, cell.method, cell.side)
            scores.setdefault(place, []).append(body["accuracy"])
    parts = [
        "# TinyTL, measured\n\nMade by `python -m benchmarks.tinytl`. Memory is that of fp32 "
        "programs that whet wrote: RAM is data + bss as linked, in MB (10^6). Frozen weights are "
        "stored in 8 bits where the arena has room to widen them: more of them in batches of 8 "
        "than of 1.\n",
        *memory_parts(results),
    ]
    if scores:
        out.with_name("accuracy.svg").write_text(picture(results, scores))
        parts += [
            about_accuracy(results, cells, steps),
            "![accuracy over memory](accuracy.svg)\n",
            table(accuracy_head(), accuracy_rows(results, scores)),
        ]
    out.write_text("\n".join(parts))


# --- Memory ---------------------------------------------------------------------------------------


def memory_parts(results: Results) -> Iterator[str]:
    head = ["method", "arena", "full / arena", "RAM", "frozen weights", "total", "full / total"]
    for batch, adam in COUNTED:
        if rows := list(memory_rows(results, batch, adam)):
            optimizer = "Adam" if adam else "SGD"
            yield f"## ProxylessNAS-Mobile, 224 pixels, batch {batch}, {optimizer}\n"
            yield table(head, rows)


def memory_rows(results: Results, batch: int, adam: bool) -> Iterator[list[str]]:
    found = {m: results.get(memory_key(LARGE, m, 224, batch, adam)) for m in METHODS}
    full = found["full"]
    for method, own in found.items():
        if own and full:
            total, whole = (m["linked"] + m["frozen"] for m in (own, full))
            yield [
                method, megabytes(own["arena"]), f"{full['arena'] / own['arena']:.1f}x",
                megabytes(own["linked"]), megabytes(own["frozen"]), megabytes(total),
                f"{whole / total:.1f}x",
            ]  # fmt: skip


def megabytes(n: float) -> str:
    return f"{n / 1e6:.1f}"


# --- Accuracy -------------------------------------------------------------------------------------


def about_accuracy(results: Results, cells: Sequence[Cell], steps: int) -> str:
    by = Counter(found["by"] for c in cells if (found := results.get(c.key)))
    trained_by = ", ".join(f"{who}, {count} times" for who, count in by.most_common())
    counts = sorted(set(Counter((c.net, c.data, c.method, c.side) for c in cells).values()))
    seeds = f"{' or '.join(map(str, counts))} seeds"
    return (
        f"## Accuracy\n\nPercent of the test pictures (mean of {seeds}, ± their standard "
        f"deviation) after {steps:,} steps of Adam in batches of 8, and MB of RAM: data + bss with "
        "Adam's moments, for 102 classes; frozen weights come on top. Every method starts from a "
        "classifier that was taught alone, and takes the best of its rates on a quarter of the "
        "training pictures, with the first seed, at 128 pixels: "
        f"{words(METHODS['full'].rates)} for full, {words(METHODS['last'].rates)} for the others. "
        "All weights are rounded to 8 bits first. Full, checkpointed, learns what full does. "
        f"Trained by: {trained_by}, from the same backbones, on the same pictures in the same "
        "order; the classifiers were taught where the rest was, so they differ by rounding. "
        "Without taught classifiers, in a first look at held-out pictures of Flowers-102, "
        "MobileNetV2's classifier alone was better than biases or branches: that is why they "
        "came.\n"
    )


def words(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def accuracy_head() -> list[str]:
    sides = [w for side in SIDES for w in (f"{side} px, %", "MB, batch 8", "batch 1")]
    return ["network, pictures, method", *sides]


def accuracy_rows(results: Results, scores: Scores) -> list[list[str]]:
    rows = []
    for data in CLASSES:
        for net in NETS:
            for method in METHODS:
                row = [f"{net}, {data}, {method}"]
                for side in SIDES:
                    row.append(mean(learned(scores, net, data, method, side)))
                    found = (results.get(memory_key(net, method, side, b)) for b in (8, 1))
                    row += [megabytes(m["linked"]) if m else "-" for m in found]
                if any("±" in word for word in row):
                    rows.append(row)
    return rows


def learned(scores: Scores, net: str, data: str, method: str, side: int) -> Sequence[float]:
    """To compute again what was not kept changes no number."""
    name = "full" if method == "full, checkpointed" else method
    return scores.get((net, data, name, side), ())


def mean(numbers: Sequence[float]) -> str:
    if not numbers:
        return "-"
    text = f"{statistics.mean(numbers):.1f}"
    return f"{text} ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else text


# --- The picture ----------------------------------------------------------------------------------


def picture(results: Results, scores: Scores) -> str:
    """Accuracy over RAM: a panel for each network and picture set, a line through the sizes."""
    parts = svg.legend(20, 72, [(m.color, name) for name, m in METHODS.items()])
    wide, high = (svg.WIDTH - 20) / len(NETS), (svg.HEIGHT - 95) / len(CLASSES)
    for row, data in enumerate(CLASSES):
        for column, net in enumerate(NETS):
            curves = {m: points(results, scores, net, data, m) for m in METHODS}
            box = (20 + column * wide, 90 + row * high, wide, high)
            parts += panel(box, f"{net}, {data}", {m: c for m, c in curves.items() if c})
    about = "percent of the test pictures over MB of RAM in batches of 8, pictures of 96, 112, 128"
    return svg.page("Accuracy against memory", about, parts)


def points(results: Results, scores: Scores, net: str, data: str, method: str) -> list[Point]:
    found = []
    for side in SIDES:
        own = learned(scores, net, data, method, side)
        memory = results.get(memory_key(net, method, side))
        if own and memory:
            found.append((memory["linked"] / 1e6, statistics.mean(own)))
    return found


def panel(box: svg.Box, title: str, curves: Mapping[str, Sequence[Point]]) -> list[str]:
    every = [point for own in curves.values() for point in own]
    if not every:
        return []
    left, top, right, bottom = box[0] + 34, box[1] + 20, box[0] + box[2] - 12, box[1] + box[3] - 24
    most = max(x for x, _ in every) * 1.05
    low, high = min(y for _, y in every) - 0.5, max(y for _, y in every) + 0.5

    def at(point: Point) -> Point:
        return (left + (right - left) * point[0] / most,
                bottom - (bottom - top) * (point[1] - low) / (high - low))  # fmt: skip

    parts = [svg.text(left, top - 6, title, 12, font_weight="bold")]
    for tick in svg.ticks(most, 6):
        x, _ = at((tick, low))
        parts += [svg.rule(x, top, x, bottom, svg.RULE),
                  svg.text(x, bottom + 14, f"{tick:g}", text_anchor="middle")]  # fmt: skip
    for tick in (t for t in svg.ticks(high, int(high / (high - low)) * 4) if t >= low):
        _, y = at((0, tick))
        parts += [svg.rule(left, y, right, y, svg.RULE),
                  svg.text(left - 5, y + 4, f"{tick:g}", text_anchor="end")]  # fmt: skip
    for method, own in curves.items():
        color, places = METHODS[method].color, [at(point) for point in own]
        parts += [svg.rule(*a, *b, color, stroke_width=2) for a, b in pairwise(places)]
        for (x, y), (memory, accuracy) in zip(places, own, strict=True):
            words = svg.tooltip(f"{method}: {accuracy:.1f} % in {memory:.1f} MB")
            parts.append(svg.element("circle", words, cx=x, cy=y, r=4.0, fill=color))
    return parts
