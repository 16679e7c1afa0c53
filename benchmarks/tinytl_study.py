"""The parts of the TinyTL study: methods, what each needs, and how well each learns.

Memory is that of the program whet writes: data + bss once it is built. Accuracies are of the same
model, trained by whet's program or, far faster where there is a GPU, by PyTorch, which
`program.check()` compares it with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import pictures
import qas_study
import torch
from memory import linked_ram
from pictures import CLASSES, Array, Pictures
from torch import nn

import whet
from whet import models, tinytl
from whet.demo.pictures import pretrained_model

NETS = ("mcunet-5fps", "proxyless-w0.3", "mobilenet-v2")
LARGE = "proxyless"  # of which there are no weights: for memory alone
JUDGED_AT_ONCE = 64


@dataclass(frozen=True)
class Method:
    """What trains, and what is done to the network first."""

    update: str
    branches: bool = False
    keep: float = 1.0  # share of activations
    again: bool = False  # compute again what can be, instead of keeping it
    color: str = "#8c8c8c"


METHODS = {
    "last": Method("last", color="#b8b8b8"),
    "norm+last": Method("norm+last", color="#a06fb0"),
    "TinyTL-B": Method("tinytl-b", color="#e8a33d"),
    "TinyTL-L": Method("tinytl-l", branches=True, color="#5fb3b3"),
    "TinyTL-L+B": Method("tinytl-l+b", branches=True, color="#c2313d"),
    "TinyTL-L+B+2": Method("tinytl-l+b+2", branches=True, color="#e59a9a"),
    "full, pruned to 1/4": Method("full", keep=0.25, again=True, color="#4f9d69"),
    "full, checkpointed": Method("full", again=True, color="#34699a"),
    "full": Method("full", color="#222222"),
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
    return qas_study.make_model(net, classes, seed)


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
        rematerialize=method.again, frozen="int8" if narrow else None,
    )  # fmt: skip


def memory(net: str, name: str, batch: int, side: int, adam: bool) -> dict[str, int]:
    """Bytes: of the arena, of all RAM as it is linked, and of frozen weights in 8 bits."""
    method = METHODS[name]
    program = compiled(method, network(net, 102, 0), batch, side, adam, narrow=True)
    found = program.memory
    return {
        "arena": found["arena"], "ram": found["ram"], "linked": linked_ram(program),
        "frozen": found["frozen"],
    }  # fmt: skip


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
    epochs: int
    rate: float
    held_out: bool = False  # judged on a quarter of the training pictures

    @property
    def key(self) -> dict[str, Any]:
        return asdict(self)


class Learner(Protocol):
    def step(self, x: Array, y: Array, rate: float) -> float: ...

    def predict(self, x: Array) -> Array: ...


class ByWhet:
    def __init__(self, cell: Cell) -> None:
        model = network(cell.net, CLASSES[cell.data], cell.seed)
        self.batch = cell.batch
        program = compiled(METHODS[cell.method], model, cell.batch, cell.side, narrow=True)
        self.trainer = program.load(threads=1)

    def step(self, x: Array, y: Array, rate: float) -> float:
        return self.trainer.step(x, y, lr=rate)

    def predict(self, x: Array) -> Array:
        parts = []
        for start in range(0, len(x), self.batch):
            part = x[start : start + self.batch]
            full = np.concatenate([part, np.repeat(part[:1], self.batch - len(part), 0)])
            parts.append(self.trainer.predict(full)[: len(part)])
        return np.concatenate(parts)


class ByTorch:
    def __init__(self, cell: Cell, device: str) -> None:
        method = METHODS[cell.method]
        model = network(cell.net, CLASSES[cell.data], cell.seed)
        chosen = set(compiled(method, model, 1, cell.side).chosen)
        x = torch.zeros(1, 3, cell.side, cell.side)
        self.model = prepared(method, model, x, bits=8).to(device)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in chosen)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer, self.device = torch.optim.Adam(trained, lr=1e-3), device

    def step(self, x: Array, y: Array, rate: float) -> float:
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad()
        scores = self.model(torch.from_numpy(x).to(self.device))
        loss = nn.functional.cross_entropy(scores, torch.from_numpy(y).to(self.device))
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def predict(self, x: Array) -> Array:
        with torch.no_grad():
            return np.asarray(self.model(torch.from_numpy(x).to(self.device)).cpu().numpy())


def run(cell: Cell, learner: Callable[[Cell], Learner]) -> dict[str, Any]:
    """Train, and judge on pictures that were not trained on."""
    began = time.perf_counter()
    taught = learner(cell)
    train = pictures.load(cell.data, "train")
    train, test = (
        (train.without_every(4), train.every(4))
        if cell.held_out
        else (train, pictures.load(cell.data, "test"))
    )
    losses = list(epochs(taught, cell, train))
    accuracy = accuracy_of(taught, test, cell.side)
    seconds = round(time.perf_counter() - began, 1)
    return {"accuracy": accuracy, "losses": losses, "seconds": seconds}


def epochs(taught: Learner, cell: Cell, train: Pictures) -> Iterator[float]:
    """The mean loss of each; the rate falls to 0 along a cosine."""
    random = np.random.default_rng(cell.seed)
    steps = len(train) // cell.batch
    for epoch in range(cell.epochs):
        order, total = random.permutation(len(train)), 0.0
        for i in range(steps):
            some = np.sort(order[i * cell.batch : (i + 1) * cell.batch])
            window = pictures.resized_at_random(train.images[some], random, cell.side)
            done = (epoch + (i + 0.5) / steps) / cell.epochs
            rate = cell.rate * 0.5 * (1 + math.cos(math.pi * done))
            total += taught.step(pictures.reals(window), train.labels[some], rate)
        yield round(total / steps, 4)


def accuracy_of(taught: Learner, test: Pictures, side: int) -> float:
    right = 0
    for start in range(0, len(test), JUDGED_AT_ONCE):
        images = test.images[start : start + JUDGED_AT_ONCE]
        scores = taught.predict(pictures.reals(pictures.centre(images, side)))
        right += int((scores.argmax(1) == test.labels[start : start + JUDGED_AT_ONCE]).sum())
    return round(100 * right / len(test), 3)
