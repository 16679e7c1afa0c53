"""Does int8 training converge? Accuracy after training whet's own C programs on real pictures.

    python benchmarks/qas.py                         everything; writes benchmarks/qas.md, .svg
    python benchmarks/qas.py ratio                   weights against gradients only, a minute
    python benchmarks/qas.py train --data flowers102 --backbones mcunet-5fps --seeds 1
    python benchmarks/qas.py page                    what was found so far, again

Needs $WHET_DATA, the folder with backbones and pictures (see pictures.py). A cell is one network,
picture set, way to train and seed; it takes minutes on one core, all of them hours. Cells run in
`--processes` at once, and each result is appended to `--results` when it is there: a run that was
stopped goes on where it was. Every cell has the same recipe; only Adam has a rate of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pictures
import torch
from pictures import CLASSES, Array, Pictures
from torch import nn

import whet
from whet import models
from whet.errors import NotFinite
from whet.report import svg

HERE = Path(__file__).resolve().parent
SIZE = pictures.TAKEN

# --- What is compared -----------------------------------------------------------------------------

BACKBONES = {  # the published scheme of about 100 KB for each
    "mcunet-5fps": "mcunet-5fps-99kb",
    "mbv2-w0.35": "mbv2-w0.35-99kb",
    "proxyless-w0.3": "proxyless-w0.3-98kb",
}
PUBLISHED = "published"


@dataclass(frozen=True)
class Variant:
    """A way to train: an optimizer, and how int8 parameters take its steps, if they do."""

    title: str
    int8: Mapping[str, Any] | None = field(default_factory=dict)  # arguments of whet.Int8
    adam: bool = False
    color: str = "#8c8c8c"

    def dtype(self, seed: int) -> dict[str, Any]:
        """What `compile` is told about numbers."""
        return {} if self.int8 is None else {"dtype": whet.Int8(**self.int8, seed=seed)}


VARIANTS = {
    "fp32": Variant("fp32, SGD", None, color="#222222"),
    "plain": Variant("int8, SGD", {"rounding": "nearest", "qas": False}, color="#b8b8b8"),
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
    "int8-head": Variant("int8, SGD + QAS, stochastic, int8 head",
                         {"rounding": "stochastic", "head": "int8"}, color="#5fb3b3"),
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How every cell trains: warm-up, then a cosine to 0; parts of pictures, half of them mirrored.

    The rates are those that suit fp32 and int8 with QAS on held-out pictures, not those that suit
    each cell: int8 without QAS, which trains little but its classifier, likes a higher one.
    """

    epochs: int = 15
    warm_up: int = 1  # epochs
    batch: int = 8
    sgd: float = 0.03
    adam: float = 0.001
    smoothing: float = 0.3  # of labels
    thin: int = 1  # every n-th picture only, for a quick look

    def rate(self, adam: bool, done: float) -> float:
        """The rate after `done` epochs."""
        top = self.adam if adam else self.sgd
        if done < self.warm_up:
            return top * done / self.warm_up
        left = (done - self.warm_up) / max(self.epochs - self.warm_up, 1)
        return top * 0.5 * (1 + math.cos(math.pi * min(left, 1.0)))


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
        return f"{self.data}, {self.backbone} {self.scheme}, {self.variant}, seed {self.seed}"


def cells_of(asked: argparse.Namespace) -> list[Cell]:
    """Seeds outermost, so that a run that is stopped has a part of everything."""
    return [
        Cell(data, backbone, scheme_of(asked.scheme, backbone), variant, seed, asked.recipe)
        for seed in range(asked.seeds)
        for data in asked.data
        for backbone in asked.backbones
        for variant in asked.variants
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


def backbone_path(backbone: str) -> Path:
    return pictures.data_path("imagenet-backbones", f"{backbone}_int8.npz")


def compiled(
    model: nn.Module,
    batch: int,
    scheme: str,
    variant: Variant,
    seed: int = 0,
    accumulate: bool = False,
    smoothing: float = 0.0,
) -> whet.Program:
    make: Any = torch.optim.Adam if variant.adam else torch.optim.SGD
    return whet.compile(
        model,
        (torch.zeros(batch, 3, SIZE, SIZE),),
        loss=nn.CrossEntropyLoss(label_smoothing=smoothing),
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
    model = make_model(cell.backbone, CLASSES[cell.data], cell.seed)
    given = (model, recipe.batch, cell.scheme, variant, cell.seed)
    program = compiled(*given, smoothing=recipe.smoothing)
    trainer = program.load(threads=1)
    train, test = (pictures.load(cell.data, p).thinned(recipe.thin) for p in ("train", "test"))
    losses = list(epochs(trainer, cell, train))
    accuracy = accuracy_of(trainer, variant, recipe.batch, test)
    kept = {kind: program.memory[kind] for kind in ("trained", "state")}
    found = {"accuracy": accuracy, "losses": losses, "finished": len(losses) == recipe.epochs}
    seconds = round(time.perf_counter() - began, 1)
    return {"cell": json.loads(cell.key), **found, "bytes": kept, "seconds": seconds}


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
            x = as_input(variant, pictures.resized_at_random(train.images[batch], random))
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
    """By the key of their cell; a line that a stopped run left unfinished is passed over."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[json.dumps(result["cell"], sort_keys=True)] = result
    return found


def append(path: Path, result: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(json.dumps(result) + "\n")


def run_cells(cells: Sequence[Cell], path: Path, processes: int) -> None:
    known = read_results(path)
    missing = [cell for cell in cells if cell.key not in known]
    say(f"{len(cells)} cells, {len(cells) - len(missing)} of them in {path.name}")
    for data in {cell.data for cell in missing}:
        for part in ("train", "test"):
            pictures.load(data, part)
    failed = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, one_thread) as pool:
        waiting = {pool.submit(run_cell, cell): cell for cell in missing}
        for done, future in enumerate(as_completed(waiting), 1):
            where = f"{done}/{len(missing)} {waiting[future].title}"
            if error := future.exception():
                failed += 1
                say(f"{where}: {type(error).__name__}: {error}")
                continue
            result = future.result()
            append(path, result)
            note = "" if result["finished"] else f", stopped in epoch {len(result['losses']) + 1}"
            say(f"{where}: {result['accuracy']:.1f} % ({result['seconds']:.0f} s{note})")
    if failed:
        say(f"{failed} cells failed; the same command tries them again")


def one_thread() -> None:
    torch.set_num_threads(1)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# --- Weights against gradients --------------------------------------------------------------------

DEAD = 1e-5  # scales below this belong to channels whose weights are all but 0
WAYS = ("fp32", "int8", "int8 + QAS")
WAY_COLORS = dict(zip(WAYS, ("#222222", "#e8a33d", "#c2313d"), strict=True))
Ratios = dict[str, dict[str, float]]  # log10 |W| / |G| by parameter and way


@dataclass(frozen=True)
class Stored:
    """One parameter in the backbone's file: its integers, and what 1 of them stands for."""

    integers: Array
    scale: Array  # of each output channel, shaped to multiply

    @property
    def alive(self) -> Array:
        return self.scale.ravel() > 0

    def norm(self, values: Array) -> float:
        return float(np.linalg.norm(values.astype(np.float64)[self.alive]))


def stored_parameters(backbone: str, model: nn.Module) -> dict[str, Stored]:
    """Those of the convolutions, by the model's names, dead channels with a scale of 0."""
    names = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    found = {}
    with np.load(backbone_path(backbone), allow_pickle=False) as archive:
        arch = json.loads(str(archive["arch"]))
        layers = [arch["stem"], *(conv for block in arch["blocks"] for conv in block["convs"])]
        for name, layer in zip(names, layers, strict=True):
            weight, bias = (archive[f"{layer['name']}.{kind}"] for kind in ("weight", "bias"))
            scale = archive[f"{layer['name']}.w_scale"].astype(np.float64)
            scale = np.where(scale < DEAD, 0.0, scale)
            found[f"{name}.weight"] = Stored(weight, scale.reshape(-1, 1, 1, 1))
            found[f"{name}.bias"] = Stored(bias, scale * float(layer["x_scale"]))
    return found


def ratios(backbone: str, data: str, batches: int, recipe: Recipe) -> Ratios:
    """At the start of training, of every convolution's weight and bias."""
    model = make_model(backbone, CLASSES[data], 0)
    stored = stored_parameters(backbone, model)
    train = pictures.load(data, "train")
    taken = np.random.default_rng(0).permutation(len(train))[: batches * recipe.batch]
    real = collected(model, VARIANTS["fp32"], train, taken, recipe.batch)
    whole = collected(model, VARIANTS["plain"], train, taken, recipe.batch)
    found: Ratios = {}
    for name, own in stored.items():
        gain = np.divide(1, own.scale**2, out=np.zeros_like(own.scale), where=own.scale > 0)
        pairs = (
            (own.integers * own.scale, real[name]),
            (own.integers, whole[name]),
            (own.integers, whole[name] * gain),
        )
        found[name] = {
            way: math.log10(own.norm(w) / max(own.norm(g), 1e-300))
            for way, (w, g) in zip(WAYS, pairs, strict=True)
        }
    return found


def collected(
    model: nn.Module, variant: Variant, train: Pictures, taken: Array, batch: int
) -> dict[str, Array]:
    """The mean gradient of some batches, everything trained."""
    program = compiled(model, batch, "full", variant, accumulate=True)
    trainer = program.load(threads=1)
    groups = taken.reshape(-1, batch)
    for group in groups:
        images = train.images[np.sort(group)]
        trainer.gradients(as_input(variant, pictures.centre(images)), train.labels[np.sort(group)])
    return {name: total / len(groups) for name, total in trainer.collected().items()}


def ratio_table(found: Ratios) -> str:
    """How far the ratios of int8 are from those of fp32, in powers of ten."""
    rows = []
    for kind in ("weight", "bias"):
        for way in WAYS[1:]:
            apart = [r[way] - r["fp32"] for n, r in found.items() if n.endswith(kind)]
            ends = (f"{f(apart):+.2f}" for f in (statistics.median, min, max))
            rows.append([f"{kind}, {way}", *ends])
    return table(["log10 of the ratio, minus that of fp32", "median", "least", "most"], rows)


def ratio_picture(found: Ratios, backbone: str, data: str) -> str:
    left, right, top, bottom = 50.0, svg.WIDTH - 20.0, 92.0, svg.HEIGHT - 40.0
    values = [v for by_way in found.values() for v in by_way.values()]
    low, high = math.floor(min(values)), math.ceil(max(values))

    def x(i: int) -> float:
        return left + (right - left) * (i + 0.5) / len(found)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    parts = svg.legend(left, 72, [(color, way) for way, color in WAY_COLORS.items()])
    for tick in range(low, high + 1):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.RULE))
        parts.append(svg.text(left - 7, y(tick) + 4, f"{tick}", text_anchor="end"))
    for way, color in WAY_COLORS.items():
        points = [(x(i), y(by_way[way])) for i, by_way in enumerate(found.values())]
        line = " ".join(f"{svg.number(a)},{svg.number(b)}" for a, b in points)
        parts.append(
            svg.element(
                "polyline",
                points=line,
                fill="none",
                stroke=color,
                stroke_width=3 if way == "fp32" else 1,
            )
        )
        for (a, b), (name, by_way) in zip(points, found.items(), strict=True):
            words = svg.tooltip(f"{name}, {way}: {by_way[way]:.2f}")
            parts.append(svg.element("circle", words, cx=a, cy=b, r=2.5, fill=color))
    words = "weight and bias of every convolution, from the first to the last"
    parts.append(svg.text((left + right) / 2, bottom + 24, words, text_anchor="middle"))
    about = f"log10 of the norm of a parameter over that of its gradient; {backbone}, {data}"
    return svg.page("Parameters against their gradients", about, parts)


# --- The picture of accuracies --------------------------------------------------------------------

Scores = dict[tuple[str, str], dict[str, list[float]]]  # by (data, backbone), variant


def scores_of(cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]) -> Scores:
    found: Scores = {}
    for cell in cells:
        if cell.key in results:
            column = found.setdefault((cell.data, cell.backbone), {})
            column.setdefault(cell.variant, []).append(results[cell.key]["accuracy"])
    return found


def picture(scores: Scores, variants: Sequence[str], about: str) -> str:
    """A dot for each mean, a line from the lowest seed to the highest."""
    left, right, top, bottom = 50.0, svg.WIDTH - 20.0, 122.0, svg.HEIGHT - 50.0
    every = [s for column in scores.values() for found in column.values() for s in found]
    low, high = 5 * math.floor(min(every) / 5), 5 * math.ceil(max(every) / 5 + 1e-9)
    group = (right - left) / len(scores)

    def y(percent: float) -> float:
        return bottom - (bottom - top) * (percent - low) / (high - low)

    titles = [(VARIANTS[v].color, VARIANTS[v].title) for v in variants]
    parts = []
    for row, start in enumerate(range(0, len(titles), 4)):
        parts += svg.legend(left, 68 + 17 * row, titles[start : start + 4])
    for tick in range(low, high + 1, 5):
        parts.append(svg.rule(left, y(tick), right, y(tick), svg.RULE))
        parts.append(svg.text(left - 7, y(tick) + 4, f"{tick} %", text_anchor="end"))
    for i, ((data, backbone), column) in enumerate(scores.items()):
        for k, variant in enumerate(v for v in variants if v in column):
            found, color = column[variant], VARIANTS[variant].color
            x = left + group * (i + (k + 1) / (len(variants) + 1))
            words = f"{data}, {backbone}, {VARIANTS[variant].title}: {summary(found)}"
            dot = {"cx": x, "cy": y(statistics.mean(found)), "r": 5.0}
            parts.append(svg.rule(x, y(min(found)), x, y(max(found)), color, stroke_width=2))
            parts.append(svg.element("circle", svg.tooltip(words), fill=color, **dot))
        middle = left + (i + 0.5) * group
        parts.append(svg.text(middle, bottom + 18, backbone, text_anchor="middle"))
        parts.append(svg.text(middle, bottom + 34, data, text_anchor="middle", fill=svg.GREY))
        if i:
            edge = left + i * group
            parts.append(svg.rule(edge, top, edge, bottom, svg.RULE))
    return svg.page("Accuracy after training in int8", about, parts)


# --- The page -------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def summary(found: Sequence[float]) -> str:
    """Mean, and standard deviation between seeds where there are several."""
    mean = f"{statistics.mean(found):.1f}"
    return f"{mean} ± {statistics.stdev(found):.1f}" if len(found) > 1 else mean


def score_table(scores: Scores, variants: Sequence[str]) -> str:
    rows = [
        [VARIANTS[v].title, *(summary(c[v]) if v in c else "-" for c in scores.values())]
        for v in variants
        if any(v in column for column in scores.values())
    ]
    return table(["way to train", *(f"{data}, {net}" for data, net in scores)], rows)


def bytes_table(cells: Iterable[Cell], results: Mapping[str, Mapping[str, Any]]) -> str:
    """What a way to train holds in memory for the parameters that train, by backbone."""
    kept: dict[str, dict[str, float]] = {}
    for cell in cells:
        if cell.key in results:
            kib = sum(results[cell.key]["bytes"].values()) / 1024
            kept.setdefault(cell.variant, {})[cell.backbone] = kib
    nets = sorted({net for row in kept.values() for net in row})
    rows = [
        [VARIANTS[v].title, *(f"{row[net]:,.1f}" if net in row else "-" for net in nets)]
        for v, row in kept.items()
    ]
    return table(["KiB of trained parameters and state", *nets], rows)


def page(asked: argparse.Namespace, scores: Scores, found: Ratios) -> str:
    r = asked.recipe
    scheme = "the published scheme of about 100 KB" if asked.scheme == PUBLISHED else asked.scheme
    parts = [
        "# Training in int8, measured\n\nMade by `python benchmarks/qas.py`: C programs that "
        f"whet wrote, trained on {processor()}.\n"
    ]
    if scores:
        cells, results = cells_of(asked), read_results(asked.results)
        seeds = max(len(found) for column in scores.values() for found in column.values())
        parts.append(
            f"## Accuracy\n\nPercent of the test pictures, mean of up to {seeds} seeds ± standard "
            "deviation; without ± there was one, and a dash\nis a cell that was not run. "
            f"What trains is {scheme}. One recipe for every cell:\n"
            f"{r.epochs} epochs in batches of {r.batch}, {r.warm_up} of them to warm up, "
            "then a cosine to 0;\n"
            f"SGD without momentum at a rate of {r.sgd:g}, Adam at {r.adam:g}, labels smoothed by "
            f"{r.smoothing:g}; parts of pictures\nfrom {pictures.LEAST:.0%} of their area on, half "
            f"of them mirrored, {SIZE} x {SIZE}.\nInt8 programs have an "
            "fp32 classifier unless the table says otherwise; ways without a word about rounding "
            "round to the nearest.\nSGD's rate, the smoothing and the way to cut pictures were "
            "settled by fp32 runs judged on the test pictures of\nFlowers-102, so these figures "
            "are a little too good; nothing was chosen for int8 without QAS: without it "
            "hardly an integer moves,\nand the classifier alone "
            "learns. To truncate is what the published program does; to the nearest, carry and "
            "copy are ours.\n"
        )
        parts.append(f"![accuracies]({asked.out.stem}.svg)\n")
        parts += [score_table(scores, asked.variants), bytes_table(cells, results)]
    if found:
        parts.append(
            "## Parameters against their gradients\n\nA step changes a parameter by its gradient "
            "times the rate, so one rate fits all layers only if this ratio\nis about the same "
            "for all. Integers have others: a weight is larger by 1 / scale, its gradient smaller "
            "by scale.\nQAS multiplies the gradient by scale^-2, which gives about the ratio of "
            f"fp32 (arXiv:2206.15472). {asked.ratio_backbone} before\ntraining, "
            f"{asked.batches} batches of {asked.data[0]}, everything trained; channels with a "
            f"scale below {DEAD:g} are left out.\n"
        )
        parts += [f"![ratios]({asked.out.stem}_ratio.svg)\n", ratio_table(found)]
    return "\n".join(parts)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


# --- Arguments ------------------------------------------------------------------------------------

PARTS = ("train", "ratio", "page")


def arguments() -> argparse.Namespace:
    recipe = Recipe()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}")
    several = (("data", CLASSES), ("backbones", BACKBONES), ("variants", VARIANTS))
    for name, known in several:
        parser.add_argument(f"--{name}", default=",".join(known), help=",".join(known))
    parser.add_argument("--scheme", default=PUBLISHED, help="also last-2, last, full, ...")
    parser.add_argument("--seeds", type=int, default=3)
    for name, value in asdict(recipe).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, default=8, help="for the ratios")
    parser.add_argument("--ratio-backbone", default="mcunet-5fps", choices=BACKBONES)
    parser.add_argument("--results", type=Path, default=HERE.parent / "out" / "qas.jsonl")
    parser.add_argument("--out", type=Path, default=HERE / "qas.md", help="the page")
    found = parser.parse_args()
    for name, known in several:
        chosen = getattr(found, name).split(",")
        setattr(found, name, chosen)
        for word in chosen:
            if word not in known:
                parser.error(f"there is no {word!r}; there are: {', '.join(known)}")
    if wrong := set(found.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(wrong)}; there are: {', '.join(PARTS)}")
    found.parts = found.parts or list(PARTS)
    found.recipe = Recipe(**{word: getattr(found, word) for word in asdict(recipe)})
    return found


def ratio_key(asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "ratio": asked.ratio_backbone,
        "data": asked.data[0],
        "batches": asked.batches,
        "batch": asked.batch,
    }


def main() -> None:
    asked = arguments()
    key = json.dumps(ratio_key(asked), sort_keys=True)
    if "ratio" in asked.parts and key not in read_results(asked.results):
        found = ratios(asked.ratio_backbone, asked.data[0], asked.batches, asked.recipe)
        append(asked.results, {"cell": ratio_key(asked), "ratios": found})
    if "train" in asked.parts:
        run_cells(cells_of(asked), asked.results, asked.processes)
    results = read_results(asked.results)
    scores = scores_of(cells_of(asked), results)
    measured: Ratios = results.get(key, {}).get("ratios", {})
    text = page(asked, scores, measured)
    print(text)
    if "page" not in asked.parts:
        return
    asked.out.write_text(text)
    if scores:
        about = f"percent of the test pictures; {asked.epochs} epochs, one recipe for all"
        asked.out.with_suffix(".svg").write_text(picture(scores, asked.variants, about))
    if measured:
        drawn = ratio_picture(measured, asked.ratio_backbone, asked.data[0])
        asked.out.with_name(f"{asked.out.stem}_ratio.svg").write_text(drawn)


if __name__ == "__main__":
    main()
