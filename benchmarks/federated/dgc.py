"""Deep Gradient Compression against dense momentum SGD, on Fashion-MNIST and a loopback socket.

    python -m benchmarks.federated.dgc                    all cells; writes dgc.jsonl and dgc.md
    python -m benchmarks.federated.dgc --seeds 1 --rounds 600     a first look
    python -m benchmarks.federated.dgc page               dgc.md again from what is kept

Four workers train one network, each with a quarter of the training pictures. In each round every
worker sends the gradient of a batch to a server, which sends the mean back to all. All of it goes
through TCP connections of this machine, and every byte that arrives is counted, that of the headers
and lengths included. Results are kept in dgc.jsonl: a run that was stopped goes on where it was.

`--data` is a folder with the four files of Fashion-MNIST (Debian: dataset-fashion-mnist).
"""

from __future__ import annotations

import gzip
import math
import socket
import struct
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import whet
from whet.labs.federated.dgc import Compression
from whet.labs.federated.distributed import distributed

HERE = Path(__file__).parent
DATA = Path("/usr/share/datasets/fashion-mnist")
WORKERS, BATCH, MOMENTUM = 4, 32, 0.9
LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Cell:
    """One training run."""

    method: str  # a key of METHODS
    seed: int
    rounds: int
    rate: float
    network: str = "lenet"


WARM_UP = 0.02  # of all rounds


def methods(rounds: int) -> dict[str, Compression]:
    return {
        "dense": Compression(0.0, MOMENTUM),
        "dgc": Compression(0.999, MOMENTUM, round(WARM_UP * rounds), coding="f16"),
        "top-k": Compression(0.999, 0.0, coding="f16", masking=False),
    }


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


def rate_at(cell: Cell, number: int) -> float:
    """Falls to 0 along half a cosine."""
    return cell.rate / 2 * (1 + math.cos(math.pi * number / cell.rounds))


def measured(cell: Cell, data: Path) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    x, y = pictures(data, "train")
    order = np.random.default_rng(cell.seed).permutation(len(x))
    shards = [(x[rows], y[rows]) for rows in np.array_split(order, WORKERS)]
    example = (torch.zeros(BATCH, 1, 28, 28),)
    program = whet.compile(network(cell.network, cell.seed), example, accumulate=True)
    settings = methods(cell.rounds)[cell.method]
    up, down = ([Wire() for _ in shards] for _ in range(2))
    late: list[int] = []  # bytes sent before the last tenth of the rounds

    def after(number: int, trainer: whet.Trainer) -> None:
        if number == cell.rounds - cell.rounds // 10 - 1:
            late.extend(sum(w.carried for w in wires) for wires in (up, down))

    run = distributed(
        program, shards, cell.rounds, settings=settings, seed=cell.seed, up=up, down=down,
        lr=lambda number: rate_at(cell, number), after=after,
    )  # fmt: skip
    test, labels = pictures(data, "t10k")
    right = float((run.trainers[0].predict(test).argmax(1) == labels).mean())
    sums = [sum(wire.carried for wire in wires) for wires in (up, down)]
    for wire in (*up, *down):
        wire.close()
    return {
        **asdict(cell), "accuracy": right, "parameters": program.parameters, "up": sums[0],
        "down": sums[1], "late_up": sums[0] - late[0], "late_down": sums[1] - late[1],
        "loss": float(np.mean(run.losses[-100:])),
    }  # fmt: skip
