"""Accuracy against measured memory: full, last, norms, biases, TinyTL, pruning, checkpointing.

    python benchmarks/tinytl.py                    everything; writes benchmarks/tinytl.md, .svg
    python benchmarks/tinytl.py memory             ProxylessNAS-Mobile at 224 pixels, batch 8 and 1
    python benchmarks/tinytl.py train --torch cuda --only flowers102,mcunet-5fps
    python benchmarks/tinytl.py page               what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see pictures.py), and the MobileNetV2 that
`make demo-pictures` installs. Every method takes the best of three rates on held-out pictures.
Weights are rounded to 8 bits, and those that are frozen stored in bytes. What was found is kept
in `--results`: a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import tinytl_study as study
import torch
from page import processor, table
from pictures import CLASSES
from tinytl_study import LARGE, METHODS, NETS, ByTorch, ByWhet, Cell

from whet.report import svg

HERE = Path(__file__).resolve().parent
PARTS = ("memory", "train", "page")
SIDES = (96, 128)
RATES = (0.0003, 0.001, 0.003)
EPOCHS = 12
SEEDS = 3
COUNTED = [("proxyless", 224, batch, adam) for batch in (8, 1) for adam in (False, True)]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


class Results:
    """Lines of JSON, each with its key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {k: body for k, body in map(parsed, lines) if k}

    def get(self, key: Mapping[str, Any]) -> Any:
        return self.known.get(json.dumps(key, sort_keys=True))

    def add(self, key: Mapping[str, Any], body: Any) -> None:
        self.known[json.dumps(key, sort_keys=True)] = body
        with open(self.path, "a") as file:
            file.write(json.dumps({"key": key, "body": body}) + "\n")


def parsed(line: str) -> tuple[str, Any]:
    """A line that was not finished has no key."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return "", None
    return json.dumps(entry["key"], sort_keys=True), entry["body"]


# --- Memory ---------------------------------------------------------------------------------------


def counted(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every program whose memory is measured."""
    for net, side, batch, adam in COUNTED:
        for method in METHODS:
            yield {"net": net, "method": method, "side": side, "batch": batch, "adam": adam}
    for net in asked.nets:
        for side in SIDES:
            for batch in (8, 1):
                for method in METHODS:
                    yield {"net": net, "method": method, "side": side, "batch": batch, "adam": True}


def do_memory(asked: argparse.Namespace, results: Results) -> None:
    for key in counted(asked):
        if results.get(key) is None and offers(key["net"], key["method"]):
            found = study.memory(key["net"], key["method"], key["batch"], key["side"], key["adam"])
            results.add(key, found)
            say(f"{key}: {found['linked']:,} bytes")


def offers(net: str, method: str) -> bool:
    """The int8 backbones come without norms."""
    return method != "norm+last" or net in (LARGE, "mobilenet-v2")


# --- Accuracy -------------------------------------------------------------------------------------


def tuning(asked: argparse.Namespace) -> list[Cell]:
    """Every method at every rate, on held-out pictures, at the larger size."""
    return [
        Cell(net, data, method, SIDES[-1], 8, 0, asked.epochs, rate, held_out=True)
        for data in asked.data for net in asked.nets for method in METHODS
        if offers(net, method) for rate in RATES
    ]  # fmt: skip


def cells(asked: argparse.Namespace, results: Results) -> list[Cell]:
    """Each at the rate that was its best."""
    found = []
    tuned = tuning(asked)
    for seed in range(asked.seeds):
        for data in asked.data:
            for net in asked.nets:
                for method in METHODS:
                    own = [c for c in tuned if (c.net, c.data, c.method) == (net, data, method)]
                    scores = {c.rate: results.get(c.key) for c in own}
                    if not own or not all(scores.values()):
                        continue
                    rate = max(scores, key=lambda r: scores[r]["accuracy"])
                    found += [
                        Cell(net, data, method, side, 8, seed, asked.epochs, rate)
                        for side in SIDES
                    ]  # fmt: skip
    return found


def do_train(asked: argparse.Namespace, results: Results) -> None:
    for make in (tuning, partial(cells, results=results)):
        missing = [c for c in make(asked) if results.get(c.key) is None]
        say(f"{len(missing)} cells to train")
        learner = partial(ByTorch, device=asked.torch) if asked.torch else ByWhet
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(asked.workers, context, torch.set_num_threads, (1,)) as pool:
            waiting = {pool.submit(study.run, cell, learner): cell for cell in missing}
            for done, future in enumerate(as_completed(waiting), 1):
                cell, found = waiting[future], future.result()
                results.add(cell.key, found)
                say(f"{done}/{len(missing)} {cell}: {found['accuracy']:.1f} %")


# --- The page -------------------------------------------------------------------------------------


def megabytes(n: float) -> str:
    return f"{n / 1e6:.1f}"


def memory_rows(results: Results, batch: int, adam: bool) -> list[list[str]]:
    rows = []
    keys = [{"net": LARGE, "method": m, "side": 224, "batch": batch, "adam": adam} for m in METHODS]
    full = results.get(keys[-1])
    for key in keys:
        found = results.get(key)
        if found is None or full is None:
            continue
        total, whole = (m["linked"] + m["frozen"] for m in (found, full))
        rows.append([
            key["method"], megabytes(found["arena"]), f"{full['arena'] / found['arena']:.1f}x",
            megabytes(found["linked"]), megabytes(found["frozen"]), megabytes(total),
            f"{whole / total:.1f}x",
        ])  # fmt: skip
    return rows


def accuracy_rows(asked: argparse.Namespace, results: Results) -> list[list[str]]:
    rows = []
    every = cells(asked, results)
    for data in asked.data:
        for net in asked.nets:
            for method in METHODS:
                row = [f"{net}, {data}, {method}"]
                for side in SIDES:
                    place = (net, data, method, side)
                    own = [c for c in every if (c.net, c.data, c.method, c.side) == place]
                    scores = [r["accuracy"] for c in own if (r := results.get(c.key))]
                    key = {"net": net, "method": method, "side": side, "batch": 8, "adam": True}
                    found = results.get(key)
                    row += [mean(scores), megabytes(found["linked"]) if found else "-"]
                if any(word != "-" for word in row[1:]):
                    rows.append(row)
    return rows


def mean(numbers: Sequence[float]) -> str:
    if not numbers:
        return "-"
    text = f"{statistics.mean(numbers):.1f}"
    return f"{text} ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else text


def page(asked: argparse.Namespace, results: Results) -> str:
    head = ["method", "arena", "full / arena", "RAM", "frozen, 8 bits", "total", "full / total"]
    parts = [
        "# TinyTL, measured\n\nMade by `python benchmarks/tinytl.py`: fp32 programs that whet "
        f"wrote, on {processor()}. RAM is data + bss of the built program, in MB (10^6).\n",
    ]
    for _, side, batch, adam in COUNTED:
        rows = memory_rows(results, batch, adam)
        if rows:
            optimizer = "Adam" if adam else "SGD"
            parts.append(f"## ProxylessNAS-Mobile, {side} pixels, batch {batch}, {optimizer}\n")
            parts.append(table(head, rows))
    rows = accuracy_rows(asked, results)
    if rows:
        columns = [w for side in SIDES for w in (f"{side} px, %", f"{side} px, MB")]
        parts.append(
            f"## Accuracy\n\nPercent of the test pictures after {asked.epochs} epochs of Adam in "
            f"batches of 8 (mean of {asked.seeds} seeds), and RAM of the program. Every method at "
            "its best of three rates on held-out pictures. Trained by "
            f"{'PyTorch on a GPU' if asked.torch else 'whet'}.\n"
        )
        parts.append(table(["network, pictures, method", *columns], rows))
        parts.append(f"![accuracy over memory]({asked.out.stem}.svg)\n")
    return "\n".join(parts)


def picture(asked: argparse.Namespace, results: Results) -> str:
    """Accuracy over RAM; a line joins the sizes of a picture."""
    left, right, top, bottom = 60.0, svg.WIDTH - 20.0, 110.0, svg.HEIGHT - 50.0
    curves: dict[str, list[tuple[float, float]]] = {}
    for cell in cells(asked, results):
        key = {"net": cell.net, "method": cell.method, "side": cell.side, "batch": 8, "adam": True}
        found, score = results.get(key), results.get(cell.key)
        if found and score and cell.seed == 0 and cell.net == asked.nets[0]:
            name = f"{cell.method}, {cell.data}"
            curves.setdefault(name, []).append((found["linked"] / 1e6, score["accuracy"]))
    every = [point for points in curves.values() for point in points]
    if not every:
        return ""
    wide = max(x for x, _ in every)
    low, high = min(y for _, y in every) - 1, max(y for _, y in every) + 1

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return (left + (right - left) * point[0] / wide,
                bottom - (bottom - top) * (point[1] - low) / (high - low))  # fmt: skip

    parts = svg.legend(left, 70, [(m.color, name) for name, m in METHODS.items()])
    for name, points in curves.items():
        color = METHODS[name.rpartition(", ")[0]].color
        places = [at(p) for p in sorted(points)]
        for (x1, y1), (x2, y2) in pairwise(places):
            parts.append(svg.rule(x1, y1, x2, y2, color, stroke_width=2))
        for x, y in places:
            spot = {"cx": x, "cy": y, "r": 5.0}
            parts.append(svg.element("circle", svg.tooltip(name), fill=color, **spot))
    about = f"percent of test pictures over MB of RAM, batch 8, {asked.nets[0]}"
    return svg.page("Accuracy against memory", about, parts)


# --- Arguments ------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="networks and picture sets, with commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--torch", metavar="DEVICE", help="train by PyTorch, on cpu or cuda")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, default=HERE.parent / "out" / "tinytl.jsonl")
    parser.add_argument("--out", type=Path, default=HERE / "tinytl.md", help="the page")
    found = parser.parse_args()
    only = set(filter(None, found.only.split(",")))
    if wrong := (only - {*NETS, *CLASSES}) | (set(found.parts) - set(PARTS)):
        parser.error(f"there is no {', '.join(sorted(wrong))}")
    found.parts = found.parts or list(PARTS)
    found.nets = [n for n in NETS if n in only or not only & set(NETS)]
    found.data = [d for d in CLASSES if d in only or not only & set(CLASSES)]
    return found


def main() -> None:
    asked = arguments()
    results = Results(asked.results)
    if "memory" in asked.parts:
        do_memory(asked, results)
    if "train" in asked.parts:
        do_train(asked, results)
    if "page" in asked.parts:
        asked.out.write_text(page(asked, results))
        if drawn := picture(asked, results):
            asked.out.with_suffix(".svg").write_text(drawn)
        print(asked.out.read_text())


if __name__ == "__main__":
    main()
