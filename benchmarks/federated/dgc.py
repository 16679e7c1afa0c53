"""Deep Gradient Compression against dense momentum SGD, on Fashion-MNIST and loopback sockets.

    python -m benchmarks.federated.dgc                 every cell; writes dgc.jsonl and dgc.md
    python -m benchmarks.federated.dgc --workers 15    that many cells at a time
    python -m benchmarks.federated.dgc --seeds 1 --epochs 1 --results first.jsonl     a first look
    python -m benchmarks.federated.dgc page            dgc.md again from what is kept

Four workers train one network, each with a quarter of the training pictures. In each round every
worker sends the gradient of a batch to a server, which sends the mean back to all. All of it goes
through TCP connections of this machine, and every byte that arrives is counted. Results are kept in
dgc.jsonl, one line per cell: a run that was stopped goes on where it was.

`--data` is a folder with the four files of Fashion-MNIST (Debian: dataset-fashion-mnist). A cell
takes about five minutes of one core.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import socket
import statistics
import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import whet
from benchmarks.common.page import table
from whet.labs.federated.dgc import Compression
from whet.labs.federated.distributed import distributed

HERE = Path(__file__).parent
DATA = Path("/usr/share/datasets/fashion-mnist")
PICTURES = 60_000
NODES, MOMENTUM = 4, 0.9
WARM_UP = 0.01  # of all rounds
LENGTH = struct.Struct("<I")  # in front of every update on the wire
METHODS = {
    "dense": "dense momentum SGD",
    "dgc": "DGC, 99.9 %",
    "bare": "the same without warm-up and masking",
}
NETWORKS = {"lenet": "a LeNet-5 (as in Caffe)", "mlp": "a perceptron with one hidden layer"}


@dataclass(frozen=True)
class Cell:
    """One training run."""

    method: str  # a key of METHODS
    seed: int
    epochs: float = 4
    batch: int = 8  # of each worker
    rate: float = 0.01  # at first; falls to 0 along half a cosine
    network: str = "lenet"

    @property
    def rounds(self) -> int:
        return int(self.epochs * PICTURES) // (NODES * self.batch)

    def rate_at(self, number: int) -> float:
        return self.rate / 2 * (1 + math.cos(math.pi * number / self.rounds))

    @property
    def compression(self) -> Compression:
        return {
            "dense": Compression(0.0, MOMENTUM),
            "dgc": Compression(0.999, MOMENTUM, round(WARM_UP * self.rounds), coding="f16"),
            "bare": Compression(0.999, MOMENTUM, coding="f16", masking=False),
        }[self.method]


def network(name: str, seed: int) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    if name == "mlp":
        layers = [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)]
    else:  # LeNet-5 as Caffe has it, 431,080 parameters, with ReLU behind the convolutions
        layers = [
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
        ]  # fmt: skip
    return nn.Sequential(*layers)


def pictures(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return (images.astype(np.float32) / 255 - 0.286) / 0.353, labels.astype(np.int64)


class Wire:
    """A TCP connection of this machine with itself; `carried` counts the bytes that arrived."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.near = socket.create_connection(listener.getsockname())
            self.far, _ = listener.accept()
        self.carried = 0

    def __call__(self, blob: bytes) -> bytes:
        whole = LENGTH.pack(len(blob)) + blob
        sender = threading.Thread(target=self.near.sendall, args=(whole,))
        sender.start()
        (size,) = LENGTH.unpack(self._read(LENGTH.size))
        found = self._read(size)
        sender.join()
        return found

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self.far.recv(min(size - len(found), 1 << 20))
            if not piece:
                raise ConnectionError("the connection was closed")
            found += piece
        self.carried += len(found)
        return bytes(found)

    def close(self) -> None:
        self.near.close()
        self.far.close()


def measured(cell: Cell, data: Path) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    x, y = pictures(data, "train")
    order = np.random.default_rng(cell.seed).permutation(len(x))
    shards = [(x[rows], y[rows]) for rows in np.array_split(order, NODES)]
    example = (torch.zeros(cell.batch, 1, 28, 28),)
    program = whet.compile(network(cell.network, cell.seed), example, accumulate=True)
    up, down = ([Wire() for _ in shards] for _ in range(2))
    late: list[int] = []  # bytes sent before the last tenth of the rounds

    def after(number: int, trainer: whet.Trainer) -> None:
        if number == cell.rounds - cell.rounds // 10 - 1:
            late.extend(sum(w.carried for w in wires) for wires in (up, down))

    run = distributed(
        program, shards, cell.rounds, settings=cell.compression, seed=cell.seed,
        up=up, down=down, lr=cell.rate_at, after=after,
    )  # fmt: skip
    test, labels = pictures(data, "t10k")
    right = float((run.trainers[0].predict(test).argmax(1) == labels).mean())
    sums = [sum(wire.carried for wire in wires) for wires in (up, down)]
    for wire in (*up, *down):
        wire.close()
    return {
        **asdict(cell), "rounds": cell.rounds, "parameters": program.parameters,
        "accuracy": right, "loss": float(np.mean(run.losses[-100:])), "up": sums[0],
        "down": sums[1], "late_up": sums[0] - late[0], "late_down": sums[1] - late[1],
    }  # fmt: skip


# Results and the page ------------------------------------------------------------------------


def kept(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def missing(cells: list[Cell], results: list[dict[str, Any]]) -> list[Cell]:
    known = {tuple(r[name] for name in asdict(cells[0])) for r in results}
    return [cell for cell in cells if tuple(asdict(cell).values()) not in known]


def run(cells: list[Cell], data: Path, path: Path, workers: int) -> None:
    left = missing(cells, kept(path))
    print(f"{len(left)} of {len(cells)} cells to run", flush=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measured, cell, data) for cell in left]):
            result = done.result()
            with path.open("a") as file:
                file.write(json.dumps(result) + "\n")
            shown = ("method", "seed", "epochs", "accuracy", "up")
            print(*(result[name] for name in shown), flush=True)


def mean(results: list[dict[str, Any]], name: str) -> float:
    return statistics.mean(r[name] for r in results)


def spread(values: list[float]) -> str:
    """In percent, with the standard deviation over seeds."""
    text = f"{100 * statistics.mean(values):.2f}"
    return text + (f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else "")


def row(method: str, of: dict[str, list[dict[str, Any]]]) -> list[str]:
    own, dense = of[method], of["dense"]
    by_seed = {r["seed"]: r["accuracy"] for r in dense}
    gaps = [r["accuracy"] - by_seed[r["seed"]] for r in own if r["seed"] in by_seed]
    times = [
        sum(mean(dense, n) for n in names) / sum(mean(own, n) for n in names)
        for names in (("up",), ("late_up",), ("up", "down"))
    ]
    sent = mean(own, "up") / 1e6 / NODES
    return [
        METHODS[method], spread([r["accuracy"] for r in own]),
        "" if method == "dense" else f"{100 * statistics.mean(gaps):+.2f}",
        f"{sent:,.1f}", *("" if method == "dense" else f"{t:,.0f}" for t in times),
    ]  # fmt: skip


ABOUT = """# Deep Gradient Compression

Made by `python -m benchmarks.federated.dgc` from `dgc.jsonl`. Fashion-MNIST, {kind}
with {parameters:,} parameters, {nodes} workers with {batch} pictures in a batch, {rounds:,} rounds
({epochs:g} epochs). SGD at a rate of {rate:g} that falls to 0, momentum 0.9; {seeds} seeds. DGC
sends 0.1 % of all coordinates, in fp16; in the first 1 % of rounds, the warm-up, 25 to 0.4 %.

Bytes are those that arrived at the other end of TCP connections: updates with their headers, and
4 bytes of length; headers of TCP are not in them. *Late* is the last tenth of all rounds. The
server answers with the mean of {nodes} updates whose coordinates differ, so an answer is up to
{nodes} times as long as an update; *both ways* counts updates and answers.
"""
HEAD = (
    "", "test accuracy, %", "to dense, points", "MB sent per worker", "less, x", "less late, x",
    "less both ways, x",
)  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    first = results[0]
    of = {m: [r for r in results if r["method"] == m] for m in METHODS}
    of = {m: found for m, found in of.items() if found}
    seeds = len({r["seed"] for r in results})
    about = ABOUT.format(**first, kind=NETWORKS[first["network"]], nodes=NODES, seeds=seeds)
    return f"{about}\n{table(HEAD, [row(method, of) for method in of])}"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--results", type=Path, default=HERE / "dgc.jsonl")
    parser.add_argument("--workers", type=int, default=1, help="cells at a time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=Cell.epochs)
    parser.add_argument("--batch", type=int, default=Cell.batch)
    parser.add_argument("--rate", type=float, default=Cell.rate)
    parser.add_argument("--network", choices=NETWORKS, default=Cell.network)
    args = parser.parse_args(given)
    cells = [
        Cell(method, seed, args.epochs, args.batch, args.rate, args.network)
        for seed in range(args.seeds)
        for method in METHODS
    ]
    if args.what == "run":
        run(cells, args.data, args.results, args.workers)
    common = {k: v for k, v in asdict(cells[0]).items() if k not in ("method", "seed")}
    own = [r for r in kept(args.results) if all(r[k] == v for k, v in common.items())]
    args.results.with_suffix(".md").write_text(page(own))


if __name__ == "__main__":
    main()
