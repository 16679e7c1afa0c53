"""Fashion-MNIST by ten clients: a small network, trained together or in one place."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from whet.demo.pictures import fashion_mnist_folder, read_idx
from whet.federated import ClientData, Local, dirichlet, federate, iid, simulate

CLIENTS, ROUNDS, PICTURES = 10, 25, 20_000
EPOCHS, BATCH, RATE, LEAST = 2, 16, 0.1, 32  # of a client: LEAST samples of it
SPLITS = {"iid": None, "dirichlet 0.5": 0.5, "dirichlet 0.1": 0.1}
MUS = (0.01, 0.1)
RATES = (0.01, 0.03, RATE)  # in one place
Array = np.ndarray


@dataclass(frozen=True)
class Cell:
    """One training: who has which pictures, and what the server and the clients do."""

    split: str  # of SPLITS, or "central"
    strategy: str = "fedavg"
    mu: float = 0.0
    seed: int = 0
    engine: str = "loop"
    rate: float = RATE

    @property
    def name(self) -> str:
        if self.split == "central":
            return f"in one place, rate {self.rate:g}"
        words = "FedAvg" if self.strategy == "fedavg" else f"FedProx, mu {self.mu:g}"
        return words + (", Flower's simulation" if self.engine == "flower" else "")


def cells(seeds: int) -> list[Cell]:
    found = []
    for seed in range(seeds):
        found += [Cell("central", seed=seed, rate=rate) for rate in RATES]
        found.append(Cell("iid", seed=seed))
        for split in ("dirichlet 0.5", "dirichlet 0.1"):
            found.append(Cell(split, seed=seed))
            found += [Cell(split, "fedprox", mu, seed) for mu in MUS]
    return [*found, Cell("iid", engine="flower")]


@functools.cache
def pictures(folder: str | None, part: str) -> tuple[Array, Array]:
    """Pixels of -1 to 1, [n, 1, 28, 28], and classes."""
    root = Path(folder) if folder else fashion_mnist_folder()
    pixels = read_idx(root / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(root / f"{part}-labels-idx1-ubyte.gz")
    return (pixels[:, None] / np.float32(127.5) - 1).astype(np.float32), labels.astype(np.int64)


def network(seed: int) -> nn.Module:
    """Two convolutions of stride 2 and a classifier: 11,274 parameters, 0.2 million products."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 7 * 7, 10),
    ).eval()  # fmt: skip


def run(
    cell: Cell, folder: str | None = None, rounds: int = ROUNDS, count: int = PICTURES
) -> dict[str, Any]:
    """The accuracy after each round, and the bytes that travelled."""
    torch.set_num_threads(1)
    model = network(cell.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=cell.rate)
    program = whet.compile(model, (torch.zeros(BATCH, 1, 28, 28),), optimizer=optimizer)
    x, y = pictures(folder, "train")
    chosen = np.random.default_rng(cell.seed).permutation(len(y))[:count]
    x, y, test = x[chosen], y[chosen], pictures(folder, "t10k")
    parts = [ClientData(x[r], y[r], *test) for r in rows(cell, y)]
    local = Local(EPOCHS, mu=cell.mu, seed=cell.seed)
    if cell.engine == "loop":
        history = federate(program, parts, rounds, local, test=test)
    else:
        history = simulate(program, parts, rounds, local, test=test, engine=cell.engine)
    return {
        **asdict(cell),
        "study": "fashion",
        "rounds": rounds,
        "pictures": count,
        "accuracy": [round(r.accuracy, 5) for r in history.rounds],
        "loss": [round(r.loss, 5) for r in history.rounds],
        "sent": history.rounds[-1].sent,
        "received": history.rounds[-1].received,
        "samples": sorted(len(part.y) for part in parts),
    }


def rows(cell: Cell, labels: Array) -> list[Array]:
    if cell.split == "central":
        return [np.arange(len(labels))]
    alpha = SPLITS[cell.split]
    if alpha is None:
        return iid(len(labels), CLIENTS, cell.seed)
    return dirichlet(labels, CLIENTS, alpha, cell.seed, LEAST)
