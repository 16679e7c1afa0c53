"""Time, memory and start-up of one training step, against other frameworks in one run.

    python -m benchmarks.step                     everything; writes README.md and its picture
    python -m benchmarks.step mcunet resnet18     some workloads; prints, and writes nothing
    python -m benchmarks.step --only torch,whet   some peers; the same
    python -m benchmarks.step --threads 2         two threads; writes threads-2.md
    python -m benchmarks.step --dtype int8        int8 against float32; writes int8.md

Each peer runs in a process of its own and they take turns of half a second, so that a busy machine
slows all of them. Figures are medians, and ratios to PyTorch eager with channels last. With one
thread every process is held to one CPU (`--cpu`). A step is forward, loss, backward and plain SGD
on a batch that is in memory, in the layout the peer likes, and the loss read back. Every peer
starts from the same weights and freezes what the scheme freezes; one whose losses are not PyTorch's
is refused. A peer that is not installed is a dash: `python -m benchmarks.step.peers.install`
installs those that are not PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.step.measure import SETS, Results, measure
from benchmarks.step.page import int8_page, page, page_name, picture, picture_name
from benchmarks.step.peers import PEERS
from benchmarks.step.workloads import WORKLOADS

HERE = Path(__file__).resolve().parent
TURNS = 6


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*", help="; ".join(WORKLOADS))
    parser.add_argument("--only", default="", help="peers: " + ",".join(PEERS))
    parser.add_argument("--dtype", default="float32", choices=list(SETS), help="what whet trains")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2))
    parser.add_argument("--turns", type=int, default=TURNS, help="half seconds for each peer")
    parser.add_argument("--cpu", type=int, default=0, help="where one thread runs")
    found = parser.parse_args()
    workloads, peers = SETS[found.dtype]
    found.only = found.only.split(",") if found.only else peers
    for given, known in ((found.workloads, workloads), (found.only, PEERS)):
        for name in given:
            if name not in known:
                parser.error(f"there is no {name!r}; there are: {'; '.join(known)}")
    return found


def main() -> None:
    asked = arguments()
    results: Results = {}
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="whet-step-") as root:
        for i, name in enumerate(asked.workloads or SETS[asked.dtype][0]):
            print(f"{name} ({time.time() - began:.0f} s)", file=sys.stderr, flush=True)
            folder = Path(root) / f"{i}"
            results[name] = measure(name, asked, folder)
    int8 = asked.dtype == "int8"
    if int8:
        text = int8_page(results, asked.threads)
    else:
        text = page(results, asked.only, asked.threads)
    print(text)
    if asked.workloads or asked.only != SETS[asked.dtype][1] or asked.turns < TURNS:
        return
    (HERE / page_name(asked.threads, asked.dtype)).write_text(text)
    if not int8:
        drawn = picture(results, asked.only, asked.threads)
        (HERE / picture_name(asked.threads)).write_text(drawn)


if __name__ == "__main__":
    main()
