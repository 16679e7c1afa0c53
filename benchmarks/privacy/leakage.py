"""What do the updates of a program leak? Attacks on pictures and sentences, and defences.

    python -m benchmarks.privacy.leakage                        everything; writes leakage.md
    python -m benchmarks.privacy.leakage single batch --workers 8
    python -m benchmarks.privacy.leakage sparse --limit 4       some cells, to see that it runs
    python -m benchmarks.privacy.leakage page                   the page again, from what is kept

Parts: single, batch, text, defence, accuracy, bound, sparse, trained, page. Needs $WHET_DATA and
Fashion-MNIST (see subjects.py). About 600 cells that take two to three hours of one core together;
each is added to `--results` when it is done, and a run that was stopped goes on where it was. CPU
only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import results
from benchmarks.privacy.leakage_cells import Cell, planned, run
from benchmarks.privacy.leakage_page import write_page

HERE = Path(__file__).resolve().parent
PARTS = ("single", "batch", "text", "defence", "accuracy", "bound", "sparse", "trained", "page")


def key(cell: dict[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def known(path: Path) -> dict[str, dict[str, Any]]:
    return {key(record["cell"]): record for record in results.read(path)}


def run_cells(cells: list[Cell], path: Path, workers: int) -> int:
    """Run what is missing; how many cells failed."""
    done = known(path)
    missing = [cell for cell in cells if key(asdict(cell)) not in done]
    print(f"{len(cells)} cells, {len(cells) - len(missing)} of them in {path.name}", flush=True)
    begin, failed = time.monotonic(), 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(missing) or 1), context) as pool:
        waiting = {pool.submit(run, cell): cell for cell in missing}
        for number, future in enumerate(as_completed(waiting), 1):
            title = waiting[future].title
            left = (time.monotonic() - begin) / number * (len(missing) - number)
            if error := future.exception():
                failed += 1
                print(f"{number}/{len(missing)} {title}: {type(error).__name__}: {error}")
                continue
            record = future.result()
            results.append(path, record)
            print(f"{number}/{len(missing)} {title}: {summary(record)}; "
                  f"{record['cpu']:.0f} s, {left / 60:.0f} minutes left", flush=True)  # fmt: skip
    return failed


def summary(record: dict[str, Any]) -> str:
    if "losses" in record:
        psnr = ", ".join(f"{value:.1f}" for value in record["psnr"])
        return f"{psnr} dB, {record['diverged']} of {len(record['losses'])} diverged"
    if "placed" in record:
        return f"{100 * record['bag']:.0f} % of the words, {100 * record['placed']:.0f} % in place"
    if "directions" in record:
        return f"{record['directions']} of {record['unknowns']} directions, {record['psnr']:.1f} dB"
    return f"{record['accuracy']:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="cells whose title contains this")
    parser.add_argument("--limit", type=int, help="at most so many cells")
    parser.add_argument("--results", type=Path, default=HERE / "leakage.jsonl.gz")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the page")
    asked = parser.parse_args()
    if wrong := set(asked.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(wrong))}; there are: {', '.join(PARTS)}")
    parts = asked.parts or PARTS
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cells = [c for c in planned() if c.part in parts and asked.only in c.title][: asked.limit]
    failed = run_cells(cells, asked.results, asked.workers) if cells else 0
    if "page" in parts:
        write_page(asked.out, list(known(asked.results).values()))
    if failed:
        sys.exit(f"{failed} cells failed; the same command tries them again")


if __name__ == "__main__":
    main()
