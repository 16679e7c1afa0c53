"""The cells of the int8 study: one network, picture set, way to train and seed each.

What they share, how one is trained and judged, and the file their results are kept in. The command
is __main__.py.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common import heads, pictures, results
from benchmarks.common.page import processor
from benchmarks.common.pictures import CLASSES, WINDOWS, Array, Pictures
from whet import models
from whet.errors import NotFinite
from whet.runtime.cache import cache_folder

SIZE = pictures.TAKEN

# --- What is compared -----------------------------------------------------------------------------

BACKBONES = {  # the published scheme of about 100 KB for each
    "mcunet-5fps": "mcunet-5fps-99kb",
    "mbv2-w0.35": "mbv2-w0.35-99kb",
    "proxyless-w0.3": "proxyless-w0.3-98kb",
}
FIRST = "mcunet-5fps"
PUBLISHED = "published"


@dataclass(frozen=True)
class Variant:
    """A way to train: an optimizer, and how int8 parameters take its steps, if they do."""

    title: str
    int8: Mapping[str, Any] | None = field(default_factory=dict)  # arguments of whet.Int8
    adam: bool = False
    color: str = "#8c8c8c"
    learns: bool = True

    def dtype(self, seed: int) -> dict[str, Any]:
        """What `compile` is told about numbers."""
        return {} if self.int8 is None else {"dtype": whet.Int8(**self.int8, seed=seed)}


VARIANTS = {
    "start": Variant("int8, classifier taught alone: the start", learns=False, color="#dddddd"),
    "fp32": Variant("fp32, SGD", None, color="#222222"),
    "plain": Variant("int8, SGD", {"rounding": "nearest", "qas": False}, color="#b8b8b8"),
    # fractions are kept, QAS is not: what of the gap of `plain` comes from rounding
    "plain-master": Variant("int8, SGD, fp32 copy", {"rounding": "master", "qas": False},
                            color="#8fb0c9"),
    "truncate": Variant("int8, SGD + QAS, truncate", {"rounding": "truncate"}, color="#f2cf63"),
    "nearest": Variant("int8, SGD + QAS, nearest", {"rounding": "nearest"}, color="#e8a33d"),
    "stochastic": Variant("int8, SGD + QAS, stochastic", {"rounding": "stochastic"},
                          color="#c2313d"),
    "carry8": Variant("int8, SGD + QAS, carry of 8 bits", {"rounding": "carry8"}, color="#e59a9a"),
    "carry16": Variant("int8, SGD + QAS, carry of 16 bits", {"rounding": "carry16"},
                       color="#a06fb0"),
    "master": Variant("int8, SGD + QAS, fp32 copy", {"rounding": "master"}, color="#5f6fb3"),
    "fp32-adam": Variant("fp32, Adam", None, adam=True, color="#777777"),
    # stochastic in both: to the nearest, Adam without QAS would move no integer at these rates
    "adam": Variant("int8, Adam, stochastic", {"rounding": "stochastic", "qas": False}, adam=True,
                    color="#a9d3b5"),
    "adam+qas": Variant("int8, Adam + QAS, stochastic", {"rounding": "stochastic"}, adam=True,
                        color="#4f9d69"),
    "int16-gradients": Variant("int8, SGD + QAS, carry of 8 bits, int16 gradients",
                               {"rounding": "carry8", "gradients": "int16"}, color="#8a6d3b"),
    "int8-gradients": Variant("int8, SGD + QAS, carry of 8 bits, int8 gradients",
                              {"rounding": "carry8", "gradients": "int8"}, color="#c9b18a"),
    "int8-head": Variant("int8, SGD + QAS, stochastic, int8 head",
                         {"rounding": "stochastic", "head": "int8"}, color="#5fb3b3"),
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How every cell trains: warm-up, then a cosine to 0; windows, half of them mirrored.

    The rates and the kind of windows are those that suited fp32 best on held-out pictures (RECIPES,
    ADAM_RATES), not those that suit each cell.
    """

    epochs: int = 10
    warm_up: int = 1  # epochs
    batch: int = 8
    sgd: float = 0.006
    adam: float = 0.0003
    windows: str = "cut"
    thin: int = 1  # every n-th picture only, for a quick look
    held_out: bool = False  # judge on a quarter of the training pictures, train on the others

    def rate(self, adam: bool, done: float) -> float:
        """The rate after `done` epochs."""
        top = self.adam if adam else self.sgd
        if done < self.warm_up:
            return top * done / self.warm_up
        left = (done - self.warm_up) / max(self.epochs - self.warm_up, 1)
        return top * 0.5 * (1 + math.cos(math.pi * min(left, 1.0)))

    def split(self, data: str) -> tuple[Pictures, Pictures]:
        """The pictures to train on and those to judge by."""
        train = pictures.load(data, "train")
        if self.held_out:
            train, test = train.without_every(4), train.every(4)
        else:
            test = pictures.load(data, "test")
        return train.every(self.thin), test.every(self.thin)


@dataclass(frozen=True)
class Cell:
    data: str
    backbone: str
    scheme: str
    variant: str
    seed: int
    recipe: Recipe

    @property
    def key(self) -> str:
        """What it is, for a file of results: the rate of the other optimizer does not matter."""
        words = asdict(self)
        words["recipe"].pop("sgd" if VARIANTS[self.variant].adam else "adam")
        return json.dumps(words, sort_keys=True)

    @property
    def title(self) -> str:
        words = f"{self.data}, {self.backbone} {self.scheme}, {self.variant}, seed {self.seed}"
        r = self.recipe
        rate = r.adam if VARIANTS[self.variant].adam else r.sgd
        return f"{words}, {r.windows} windows, rate {rate:g}" if r.held_out else words


# The first network has every way to train, the others have all but integers for gradients and head.
MAIN = tuple(v for v in VARIANTS if not v.endswith(("-gradients", "-head")))


def planned(scheme: str, recipe: Recipe, seeds: int) -> list[Cell]:
    """Seeds outermost, so that a run that is stopped has a part of everything."""
    return [
        Cell(data, backbone, scheme_of(scheme, backbone), variant, seed, recipe)
        for seed in range(seeds)
        for backbone in BACKBONES
        for data in CLASSES
        for variant in (VARIANTS if backbone == FIRST else MAIN)
    ]


RECIPES = tuple(
    itertools.product(WINDOWS, (0.004, 0.006, 0.008, 0.016))
)  # kind of windows, SGD's rate
ADAM_RATES = (0.0001, 0.0003, 0.001)


def candidates(recipe: Recipe) -> list[Cell]:
    """fp32 by every recipe, judged on held-out pictures of both sets, to choose one for all."""
    recipe = replace(recipe, held_out=True)
    tried = [("fp32", replace(recipe, windows=kind, sgd=rate)) for kind, rate in RECIPES]
    tried += [("fp32-adam", replace(recipe, adam=rate)) for rate in ADAM_RATES]
    return [
        Cell(data, FIRST, BACKBONES[FIRST], variant, 0, one)
        for data in CLASSES
        for variant, one in tried
    ]


def scheme_of(asked: str, backbone: str) -> str:
    return BACKBONES[backbone] if asked == PUBLISHED else asked


# --- Training -------------------------------------------------------------------------------------


def make_model(backbone: str, classes: int, seed: int) -> nn.Module:
    """The backbone with a new classifier, the same one for every way to train."""
    model = models.load_int8_backbone(backbone_path(backbone))
    torch.manual_seed(seed)
    old = model.classifier[1]
    assert isinstance(old, nn.Linear)
    model.classifier[1] = nn.Linear(old.in_features, classes)
    return model.eval()


def start(cell: Cell) -> nn.Module:
    """The same with a classifier that was taught alone, which is kept in whet's cache folder."""
    model: Any = make_model(cell.backbone, CLASSES[cell.data], cell.seed)
    head = model.classifier[1]
    kept = head_path(cell)
    if not kept.exists():
        train, _ = cell.recipe.split(cell.data)
        some = (train.images[i : i + 64] for i in range(0, len(train), 64))
        inputs = (torch.from_numpy(pictures.reals(pictures.centre(s))) for s in some)
        heads.teach(model, inputs, torch.from_numpy(train.labels))
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial, weight=head.weight.detach().numpy(), bias=head.bias.detach().numpy())
        os.replace(partial, kept)
    with np.load(kept, allow_pickle=False) as archive:
        head.load_state_dict({name: torch.from_numpy(archive[name]) for name in archive.files})
    taught: nn.Module = model
    return taught


def keep_head(cell: Cell) -> None:
    """Teach its classifier, if that is not kept yet."""
    start(cell)


def head_path(cell: Cell) -> Path:
    """By everything that it comes from."""
    files = (backbone_path(cell.backbone), pictures.source(cell.data))
    stamps = [(f.name, f.stat().st_size, int(f.stat().st_mtime)) for f in files]
    told = (heads.STEPS, heads.RATE, heads.DECAY, cell.recipe.thin, cell.recipe.held_out)
    name = hashlib.sha256(repr((*stamps, *told, cell.seed)).encode()).hexdigest()[:16]
    return cache_folder() / "heads" / f"{name}.npz"


def backbone_path(backbone: str) -> Path:
    return pictures.data_path("imagenet-backbones", f"{backbone}_int8.npz")


def compiled(
    model: nn.Module,
    batch: int,
    scheme: str,
    variant: Variant,
    seed: int = 0,
    accumulate: bool = False,
) -> whet.Program:
    make: Any = torch.optim.Adam if variant.adam else torch.optim.SGD
    return whet.compile(
        model,
        (torch.zeros(batch, 3, SIZE, SIZE),),
        optimizer=make(model.parameters(), lr=0.01),
        update=scheme,
        accumulate=accumulate,
        **variant.dtype(seed),
    )


def as_input(variant: Variant, integers: Array) -> Array:
    return pictures.reals(integers) if variant.int8 is None else integers


def run_cell(cell: Cell) -> dict[str, Any]:
    """Train, and say how many pictures of the test set are recognised."""
    began = time.perf_counter()
    variant, recipe = VARIANTS[cell.variant], cell.recipe
    program = compiled(start(cell), recipe.batch, cell.scheme, variant, cell.seed)
    trainer = program.load(threads=1)
    train, test = recipe.split(cell.data)
    losses = list(epochs(trainer, cell, train)) if variant.learns else []
    accuracy = accuracy_of(trainer, variant, recipe.batch, test)
    kept = {kind: program.memory[kind] for kind in ("trained", "state")}
    finished = len(losses) == recipe.epochs or not variant.learns
    found = {"accuracy": accuracy, "losses": losses, "finished": finished}
    seconds = round(time.perf_counter() - began, 1)
    where = {"seconds": seconds, "processor": processor()}
    return {"cell": json.loads(cell.key), **found, "bytes": kept, **where}


def epochs(trainer: whet.Trainer, cell: Cell, train: Pictures) -> Iterator[float]:
    """The mean loss of each epoch; there are no more once it is not finite."""
    variant, recipe = VARIANTS[cell.variant], cell.recipe
    random = np.random.default_rng(cell.seed)
    steps = len(train) // recipe.batch
    for epoch in range(recipe.epochs):
        order = random.permutation(len(train))
        total = 0.0
        for step in range(steps):
            batch = np.sort(order[step * recipe.batch : (step + 1) * recipe.batch])
            x = as_input(variant, WINDOWS[recipe.windows](train.images[batch], random))
            rate = recipe.rate(variant.adam, epoch + (step + 0.5) / steps)
            try:
                total += trainer.step(x, train.labels[batch], lr=rate)
            except NotFinite:
                return
        yield round(total / steps, 5)


def accuracy_of(trainer: whet.Trainer, variant: Variant, batch: int, test: Pictures) -> float:
    """Percent of the pictures, their middle, for which the right class has the highest score."""
    right = 0
    for start in range(0, len(test), batch):
        labels = test.labels[start : start + batch]
        images = test.images[start : start + batch]
        full = np.concatenate([images, np.repeat(images[:1], batch - len(images), 0)])
        scores = trainer.predict(as_input(variant, pictures.centre(full)))
        right += int((scores[: len(labels)].argmax(1) == labels).sum())
    return round(100 * right / len(test), 3)


# --- Results on disk ------------------------------------------------------------------------------


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """By the key of their cell."""
    return {json.dumps(found["cell"], sort_keys=True): found for found in results.read(path)}


def run_cells(cells: Sequence[Cell], path: Path, processes: int) -> None:
    known = read_results(path)
    missing = [cell for cell in cells if cell.key not in known]
    say(f"{len(cells)} cells, {len(cells) - len(missing)} of them in {path.name}")
    for data, recipe in {(cell.data, cell.recipe) for cell in missing}:
        recipe.split(data)  # decoded once, not by every process
    trained = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, one_thread) as pool:
        taught = {head_path(cell): cell for cell in missing}
        for _ in outcomes(pool, keep_head, list(taught.values()), "the classifier of "):
            pass
        for where, result in outcomes(pool, run_cell, missing):
            results.append(path, result)
            trained += 1
            note = "" if result["finished"] else f", stopped in epoch {len(result['losses']) + 1}"
            say(f"{where}: {result['accuracy']:.1f} % ({result['seconds']:.0f} s{note})")
    if failed := len(missing) - trained:
        say(f"{failed} cells failed; the same command tries them again")


def outcomes(
    pool: Executor, work: Callable[[Cell], Any], cells: Sequence[Cell], what: str = ""
) -> Iterator[tuple[str, Any]]:
    """What came of each cell that did not fail, with its title, as they end."""
    waiting = {pool.submit(work, cell): cell for cell in cells}
    for done, future in enumerate(as_completed(waiting), 1):
        where = f"{done}/{len(cells)} {what}{waiting[future].title}"
        if error := future.exception():
            say(f"{where}: {type(error).__name__}: {error}")
        else:
            yield where, future.result()


def one_thread() -> None:
    torch.set_num_threads(1)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
