"""Federated training of compiled programs: Fashion-MNIST by ten clients, a watch by ten people.

    python -m benchmarks.federated                      everything; writes the page beside this file
    python -m benchmarks.federated fashion --seeds 1    a first look
    python -m benchmarks.federated watch --workers 2
    python -m benchmarks.federated page                 what was found so far, again

Needs the Debian package dataset-fashion-mnist (or --pictures FOLDER), the package seglearn (pip
install --no-deps seglearn), and for one cell Flower's simulation (the extra fl-sim); a cell that
lacks it is left out. What was found is kept in `--results`, results.jsonl.gz beside this file, and
is not computed again.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common.results import append, read
from benchmarks.federated import fashion, watch
from benchmarks.federated.page import write_page

HERE = Path(__file__).resolve().parent
PARTS = ("fashion", "watch", "page")


def left(asked: argparse.Namespace, known: list[dict[str, Any]]) -> list[tuple[Any, tuple]]:
    """What is still to be done: functions and their arguments."""
    jobs: list[tuple[Any, tuple]] = []
    ray = importlib.util.find_spec("ray") is not None
    for cell in fashion.cells(asked.seeds) if "fashion" in asked.parts else ():
        key = asdict(cell).items()
        if not any(key <= found.items() for found in hashed(known)) and (
            ray or cell.engine != "flower"
        ):
            jobs.append((fashion.run, (cell, asked.pictures)))
    for pair in range(watch.PAIRS) if "watch" in asked.parts else ():
        if not any(r["study"] == "watch" and r["pair"] == pair for r in known):
            jobs.append((watch.run, (pair,)))
    return jobs


def hashed(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without their lists."""
    return [{k: v for k, v in r.items() if not isinstance(v, (list, dict))} for r in known]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--seeds", type=int, default=3, help="of Fashion-MNIST")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pictures", help="folder with the four .gz files of Fashion-MNIST")
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl.gz")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}: choose of {', '.join(PARTS)}")
    jobs = left(asked, read(asked.results))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.workers, context) as pool:
        waiting = [pool.submit(function, *words) for function, words in jobs]
        for i, future in enumerate(as_completed(waiting)):
            found = future.result()
            append(asked.results, found)
            name = f"pair {found['pair']}" if found["study"] == "watch" else found["split"]
            print(f"{i + 1} of {len(jobs)}: {found['study']}, {name}", flush=True)
    if "page" in asked.parts:
        write_page(HERE, read(asked.results))


if __name__ == "__main__":
    main()
