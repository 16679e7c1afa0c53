"""Does int8 training converge? Accuracy after training whet's own C programs on real pictures.

    python -m benchmarks.qas                         everything; writes the page beside this file
    python -m benchmarks.qas recipe                  what the recipe was chosen by
    python -m benchmarks.qas ratio                   weights against gradients only, a minute
    python -m benchmarks.qas train --only mcunet-5fps,flowers102,fp32,carry8
    python -m benchmarks.qas page                    what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see common/pictures.py). A cell is one
network, picture set, way to train and seed; it takes about a minute of a core, all of them some
four hours.
Cells run in `--processes` at once. Each result is added to `--results` when it is there,
results.jsonl.gz beside this file unless said otherwise: a run that was stopped goes on where it
was, and what is there already is not trained again. Every cell has the same recipe; only Adam has
a rate of its own.
A part of the plan, or another one, has to say where its page goes, and another recipe its results.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import results
from benchmarks.common.pictures import CLASSES, WINDOWS
from benchmarks.qas import ratio
from benchmarks.qas.page import FIRST_DATA, drawn, page, picture, scores_of
from benchmarks.qas.ratio import Ratios
from benchmarks.qas.study import (
    BACKBONES,
    FIRST,
    PUBLISHED,
    VARIANTS,
    Cell,
    Recipe,
    candidates,
    planned,
    read_results,
    run_cells,
)

HERE = Path(__file__).resolve().parent
PARTS = ("recipe", "train", "ratio", "page")
SEEDS = 3


def arguments() -> argparse.Namespace:
    recipe = Recipe()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="sets, backbones, ways to train, with commas")
    parser.add_argument("--scheme", default=PUBLISHED, help="also last-2, last, full, ...")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--windows", default=recipe.windows, choices=WINDOWS)
    for name in ("epochs", "warm_up", "batch", "sgd", "adam", "thin"):
        value = getattr(recipe, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, default=8, help="for the ratios")
    parser.add_argument("--ratio-backbone", default=FIRST, choices=BACKBONES)
    parser.add_argument("--results", type=Path, help="the kept ones if left out")
    parser.add_argument("--out", type=Path, help="folder of the page; this one if left out")
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
    keep_apart(parser, found)
    found.results = found.results or HERE / "results.jsonl.gz"
    found.out = found.out or HERE
    return found


def keep_apart(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    """The files beside this one are those of the whole plan: nothing else is written there."""
    usual = all(getattr(asked, n) == parser.get_default(n) for n in ("batches", "ratio_backbone"))
    usual &= asked.recipe == Recipe() and asked.scheme == PUBLISHED
    whole = usual and not asked.only and asked.seeds == SEEDS
    if "page" in asked.parts and not whole and not asked.out:
        parser.error("this is not the whole plan, which README.md is about: say --out")
    if set(asked.parts) != {"page"} and not usual and not asked.results:
        parser.error("this is not the plan whose results are kept here: say --results")


ASPECTS = (CLASSES, BACKBONES, VARIANTS)


def cells_of(asked: argparse.Namespace) -> list[Cell]:
    """The plan's, or those of them that have what was asked for in every aspect named."""
    wanted = [asked.only & set(names) for names in ASPECTS]
    return [
        cell
        for cell in planned(asked.scheme, asked.recipe, asked.seeds)
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
        found = ratio.ratios(asked.ratio_backbone, FIRST_DATA, asked.batches, asked.recipe)
        results.append(asked.results, {"cell": ratio_key(asked), "ratios": found})
    if "recipe" in asked.parts:
        run_cells(candidates(asked.recipe), asked.results, asked.processes)
    if "train" in asked.parts:
        run_cells(cells_of(asked), asked.results, asked.processes)
    cells, known = cells_of(asked), read_results(asked.results)
    scores = scores_of(cells, known)
    measured: Ratios = known.get(key, {}).get("ratios", {})
    text = page(asked, cells, known, scores, measured)
    print(text)
    if "page" not in asked.parts:
        return
    (asked.out / "README.md").write_text(text)
    if drawn(scores):
        about = f"percent of the test pictures; {asked.epochs} epochs, one recipe for all"
        (asked.out / "accuracy.svg").write_text(picture(scores, about))
    if measured:
        ratios = ratio.ratio_picture(measured, asked.ratio_backbone, FIRST_DATA)
        (asked.out / "ratio.svg").write_text(ratios)


if __name__ == "__main__":
    main()
