"""Accuracy against measured memory: full, last, norms, biases, TinyTL, pruning, checkpointing.

    python -m benchmarks.tinytl                    everything; writes the page beside this file
    python -m benchmarks.tinytl memory             ProxylessNAS-Mobile at 224 pixels, batch 8 and 1
    python -m benchmarks.tinytl train --gpu 12 --only flowers102,mcunet-5fps
    python -m benchmarks.tinytl page               what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see common/pictures.py), and the
MobileNetV2 that `make demo-pictures` installs. Every method takes the best of four rates on held-
out pictures. Weights are rounded to 8 bits, and those that are frozen stored in bytes where RAM has
room to widen them. What was found is kept in `--results`, results.jsonl.gz beside this file unless
said otherwise, and what is there is not computed again: a run that was stopped goes on, and one
with another file begins anew.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.pictures import CLASSES
from benchmarks.tinytl import study
from benchmarks.tinytl.page import COUNTED, memory_key, write_page
from benchmarks.tinytl.study import LARGE, METHODS, NETS, SIDES, Cell, Results

HERE = Path(__file__).resolve().parent
PARTS = ("memory", "train", "page")
SEEDS = 3
ORDER = [(seed, SIDES[-1]) for seed in range(SEEDS)] + [
    (seed, side) for seed in range(SEEDS) for side in SIDES[:-1]
]
STEPS = 2400


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# --- Memory ---------------------------------------------------------------------------------------


def counted(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every program whose memory is measured."""
    for batch, adam in () if asked.only else COUNTED:
        for method in METHODS:
            yield memory_key(LARGE, method, 224, batch, adam)
    for net in asked.nets:
        for side in SIDES:
            for batch in (8, 1):
                for method in METHODS:
                    yield memory_key(net, method, side, batch)


def do_memory(asked: argparse.Namespace, results: Results) -> None:
    keys = [k for k in counted(asked) if results.get(k) is None and offers(k["net"], k["method"])]
    with workers(asked) as pool:
        waiting = {pool.submit(study.memory, **key): key for key in keys}
        for future in as_completed(waiting):
            key, found = waiting[future], future.result()
            results.add(key, found)
            say(f"{key}: {found['linked']:,} bytes")


def workers(asked: argparse.Namespace) -> ProcessPoolExecutor:
    """Processes of one thread each."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(asked.workers, context, torch.set_num_threads, (1,))


def offers(net: str, method: str) -> bool:
    """The int8 backbones come without norms."""
    return method != "norm+last" or net in (LARGE, "mobilenet-v2")


# --- Accuracy -------------------------------------------------------------------------------------


def learns(asked: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Networks, pictures and methods; to compute again changes nothing that is learned."""
    for data in asked.data:
        for net in asked.nets:
            for name, method in METHODS.items():
                if offers(net, name) and not (method.again and method.keep == 1):
                    if method.keep == 1 or asked.pruned:
                        yield net, data, name


def tuning(asked: argparse.Namespace) -> list[Cell]:
    """Every method at every rate, on held-out pictures, at the largest size."""
    return [
        Cell(*place, SIDES[-1], 8, 0, asked.steps, rate, held_out=True)
        for place in learns(asked) for rate in METHODS[place[2]].rates
    ]  # fmt: skip


def cells(asked: argparse.Namespace, results: Results) -> list[Cell]:
    """Each at the rate that was its best."""
    rates: dict[tuple[str, str, str], dict[float, float]] = {}
    for cell in tuning(asked):
        own = rates.setdefault((cell.net, cell.data, cell.method), {})
        if score := results.get(cell.key):
            own[cell.rate] = score["accuracy"]
    return [
        Cell(*place, side, 8, seed, asked.steps, max(own, key=lambda rate: own[rate]))
        for seed, side in ORDER if seed < asked.seeds
        for place in learns(asked) if len(own := rates[place]) == len(METHODS[place[2]].rates)
    ]  # fmt: skip


def do_train(asked: argparse.Namespace, results: Results) -> None:
    for make in (tuning, partial(cells, results=results)):
        missing = [c for c in make(asked) if results.get(c.key) is None]
        say(f"{len(missing)} cells to train")
        done = itertools.count(1)

        def found(cell: Cell, body: dict[str, Any]) -> None:
            results.add(cell.key, body)
            say(f"{next(done)}/{len(missing)} {cell}: {body['accuracy']:.1f} %")  # noqa: B023

        if missing and asked.gpu:
            from benchmarks.tinytl import gpu

            gpu.train(missing, asked.gpu, found)
        elif missing:
            with workers(asked) as pool:
                waiting = {pool.submit(study.by_whet, cell): cell for cell in missing}
                for future in as_completed(waiting):
                    found(waiting[future], future.result())


# --- Arguments ------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="networks and picture sets, with commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS, help="in batches of 8")
    parser.add_argument("--pruned", action="store_true", help="train with pruned activations too")
    parser.add_argument("--gpu", type=int, metavar="N", help="train by PyTorch, N cells at once")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl.gz")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the page")
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
        page = asked.out / "README.md"
        write_page(page, results, cells(asked, results), asked.steps)
        print(page.read_text())


if __name__ == "__main__":
    main()
