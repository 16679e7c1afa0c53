"""The parts of the TinyTL study: methods, what each needs, and how well each learns.

Memory is that of the program whet writes: data + bss once it is built. Accuracies are of the same
model, trained by whet's program on the processor, or by PyTorch on a GPU (gpu.py) from the
same weights, on the same pictures in the same order.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import whet
from benchmarks.common import heads, pictures, results
from benchmarks.common.pictures import CLASSES, Array, Pictures
from benchmarks.memory.parts import linked_ram
from benchmarks.qas.study import make_model
from whet import models
from whet.demo.pictures import pretrained_model
from whet.labs import tinytl

NETS = ("mcunet-5fps", "proxyless-w0.3", "mobilenet-v2")
LARGE = "proxyless"  # of which there are no weights: for memory alone
SIDES = (96, 112, 128)
JUDGED_AT_ONCE = 64
MEANS = {"mobilenet-v2": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}  # of what it was taught on


@dataclass(frozen=True)
class Method:
    """What trains, and what is done to the network first."""

    update: str
    branches: bool = False
    keep: float = 1.0  # share of activations
    again: bool | str = False  # compute again what can be, instead of keeping it
    color: str = "#8c8c8c"
    rates: tuple[float, ...] = (0.0001, 0.0003, 0.001, 0.003)


WHOLE = (0.00003, 0.0001, 0.0003, 0.001)  # rates for a whole network
METHODS = {
    "last": Method("last", color="#b8b8b8"),
    "norm+last": Method("norm+last", color="#a06fb0"),
    "TinyTL-B": Method("tinytl-b", color="#e8a33d"),
    "TinyTL-L": Method("tinytl-l", branches=True, color="#5fb3b3"),
    "TinyTL-L+B": Method("tinytl-l+b", branches=True, color="#c2313d"),
    "TinyTL-L+B+2": Method("tinytl-l+b+2", branches=True, color="#e59a9a"),
    "full, pruned to 1/4": Method("full", keep=0.25, again=True, color="#4f9d69", rates=WHOLE),
    "full, checkpointed": Method("full", again="layers", color="#34699a"),
    "full": Method("full", color="#222222", rates=WHOLE),
}


def network(net: str, classes: int, seed: int) -> nn.Module:
    """With a new classifier."""
    torch.manual_seed(seed)
    if net == LARGE:
        return models.proxyless_nas_mobile(classes).eval()
    if net == "mobilenet-v2":
        model: Any = pretrained_model()
        model.classifier[1] = nn.Linear(model.classifier[1].in_features, classes)
        return model.requires_grad_(True).eval()
    return make_model(net, classes, seed)


def prepared(
    method: Method, model: nn.Module, x: torch.Tensor, bits: int | None = None
) -> nn.Module:
    if method.branches or bits:
        model = tinytl.prepare(model, x, lite_residual=method.branches, bits=bits)
    return tinytl.prune_activations(model, x, method.keep) if method.keep < 1 else model


def compiled(
    method: Method, model: nn.Module, batch: int, side: int, adam: bool = True, narrow: bool = False
) -> whet.Program:
    x = torch.zeros(batch, 3, side, side)
    model = prepared(method, model, x, 8 if narrow else None)
    make: Any = torch.optim.Adam if adam else torch.optim.SGD
    return whet.compile(
        model, (x,), optimizer=make(model.parameters(), lr=1e-3), update=method.update,
        rematerialize=method.again, frozen="int8" if narrow and method.update != "full" else None,
    )  # fmt: skip


def memory(net: str, method: str, side: int, batch: int, adam: bool) -> dict[str, int]:
    """Bytes: of the arena, of all RAM as it is linked, and of frozen weights in 8 bits."""
    program = compiled(METHODS[method], network(net, 102, 0), batch, side, adam, narrow=True)
    found = program.memory
    return {
        "arena": found["arena"], "ram": found["ram"], "linked": linked_ram(program),
        "frozen": found["frozen"],
    }  # fmt: skip


@functools.cache
def trained(net: str, name: str) -> frozenset[str]:
    """The parameters that a method trains."""
    program = compiled(METHODS[name], network(net, 2, 0), 1, 64)
    return frozenset(program.chosen)


# --- What was found -------------------------------------------------------------------------------


class Results:
    """What was found, by key; what is added is on disk at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = {in_order(entry["key"]): entry["body"] for entry in results.read(path)}

    def get(self, key: Mapping[str, Any]) -> Any:
        return self.known.get(in_order(key))

    def add(self, key: Mapping[str, Any], body: Any) -> None:
        self.known[in_order(key)] = body
        results.append(self.path, {"key": key, "body": body})


def in_order(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


# --- Training -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One method on one network and picture set."""

    net: str
    data: str
    method: str
    side: int
    batch: int
    seed: int
    steps: int
    rate: float
    held_out: bool = False  # judged on a quarter of the training pictures

    def parts(self) -> tuple[Pictures, Pictures]:
        """Those it learns from, and those it is judged on."""
        train = pictures.load(self.data, "train")
        if self.held_out:
            return train.without_every(4), train.every(4)
        return train, pictures.load(self.data, "test")

    @property
    def key(self) -> dict[str, Any]:
        return asdict(self)


def start(cell: Cell, device: str = "cpu") -> nn.Module:
    """The network with a classifier that was taught alone: where every method begins."""
    return _start(cell.net, cell.data, cell.side, cell.seed, cell.held_out, device)


@functools.lru_cache(64)
def _start(net: str, data: str, side: int, seed: int, held_out: bool, device: str) -> nn.Module:
    model: Any = network(net, CLASSES[data], seed).to(device)
    cell = Cell(net, data, "last", side, 8, seed, 0, 0.0, held_out)
    train, _ = cell.parts()
    some = (train.images[i : i + JUDGED_AT_ONCE] for i in range(0, len(train), JUDGED_AT_ONCE))
    inputs = (torch.from_numpy(normal(net, pictures.centre(s, side))).to(device) for s in some)
    heads.teach(model, inputs, torch.from_numpy(train.labels).to(device))
    return model.cpu().requires_grad_(True)


class ByWhet:
    def __init__(self, cell: Cell) -> None:
        self.batch = cell.batch
        program = compiled(METHODS[cell.method], start(cell), cell.batch, cell.side, narrow=True)
        self.trainer = program.load(threads=1)

    def step(self, x: Array, y: Array, rate: float) -> float:
        return self.trainer.step(x, y, lr=rate)

    def predict(self, x: Array) -> Array:
        parts = []
        for begin in range(0, len(x), self.batch):
            part = x[begin : begin + self.batch]
            full = np.concatenate([part, np.repeat(part[:1], self.batch - len(part), 0)])
            parts.append(self.trainer.predict(full)[: len(part)])
        return np.concatenate(parts)


def by_whet(cell: Cell) -> dict[str, Any]:
    """Train, and judge on pictures that were not trained on."""
    began = time.perf_counter()
    taught = ByWhet(cell)
    train, test = cell.parts()
    losses = [
        taught.step(normal(cell.net, window), labels, rate)
        for window, labels, rate in lessons(cell, train)
    ]
    right = 0
    for begin in range(0, len(test), JUDGED_AT_ONCE):
        images = pictures.centre(test.images[begin : begin + JUDGED_AT_ONCE], cell.side)
        scores = taught.predict(normal(cell.net, images))
        right += int((scores.argmax(1) == test.labels[begin : begin + JUDGED_AT_ONCE]).sum())
    seconds = round(time.perf_counter() - began, 1)
    return {
        **outcome(losses, right, len(test)),
        "seconds": seconds,
        "by": "programs that whet wrote",
    }


def outcome(losses: Sequence[float], right: int, judged: int) -> dict[str, Any]:
    """The accuracy in percent, and the mean loss of each tenth of the steps."""
    tenths = [round(float(np.mean(part)), 4) for part in np.array_split(losses, 10)]
    return {"accuracy": round(100 * right / judged, 3), "losses": tenths}


def lessons(cell: Cell, train: Pictures) -> Iterator[tuple[Array, Array, float]]:
    """Windows of pictures in int8, their labels, and the rate, which falls to 0 along a cosine."""
    random = np.random.default_rng(cell.seed)
    order = np.empty(0, np.int64)
    for step in range(cell.steps):
        if len(order) < cell.batch:
            order = random.permutation(len(train))
        some, order = np.sort(order[: cell.batch]), order[cell.batch :]
        window = pictures.resized_at_random(train.images[some], random, cell.side)
        rate = cell.rate * 0.5 * (1 + math.cos(math.pi * (step + 0.5) / cell.steps))
        yield window, train.labels[some], rate


def normal(net: str, integers: Array) -> Array:
    """Pixels as the network was taught to see them."""
    scale, shift = scale_and_shift(net)
    return integers.astype(np.float32) * scale + shift


def scale_and_shift(net: str) -> tuple[Array, Array]:
    """(pixel / 255 - mean) / deviation, of pixel - 128, for each channel."""
    means = MEANS.get(net, ((0.5,) * 3, (0.5,) * 3))
    mean, deviation = (np.array(m, np.float32).reshape(3, 1, 1) for m in means)
    scale = np.float32(1) / (255 * deviation)
    return scale, (np.float32(128 / 255) - mean) / deviation
