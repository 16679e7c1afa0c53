"""What a client does between two messages: train its program on its own samples, and judge it.

Needs NumPy alone. Every round begins with a fresh program that takes the global parameters, as in a
deployment, where each message starts a process: optimizer state does not outlive a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import whet

from ...errors import DataError
from ...runtime import Trainer, set_statistics, set_trained, statistics, trained
from ..common.data import Array, Samples

Arrays = dict[str, Array]


@dataclass(frozen=True, eq=False)
class ClientData:
    """Samples of one client: to train on, and to judge by."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array


@dataclass(frozen=True)
class Local:
    """How a client trains in a round; the batch is that of the compiled program.

    `mu` is the weight of FedProx's proximal term (arXiv:1812.06127), mu / 2 * |w - w_global|^2.
    """

    epochs: int = 1
    lr: float | None = None  # None: that of the program
    mu: float = 0.0
    seed: int = 0  # of the order of samples, with the number of the round and of the client

    def __post_init__(self) -> None:
        if type(self.epochs) is not int or self.epochs < 1:
            raise DataError(f"epochs={self.epochs!r} is not a number of epochs", try_="epochs=1")
        for name, value in (("lr", self.lr), ("mu", self.mu)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise DataError(f"{name}={value!r} is not a number of at least 0")

    @classmethod
    def of(cls, *configs: Mapping[str, Any]) -> Local:
        """From the words of a Flower message or app; of several, the first that says it counts."""
        kinds = {"local-epochs": int, "lr": float, "proximal-mu": float, "seed": int}
        names = {"local-epochs": "epochs", "proximal-mu": "mu"}
        found: dict[str, Any] = {}
        for word, kind in kinds.items():
            for config in reversed(configs):
                if word in config:
                    found[names.get(word, word)] = kind(config[word])
        return cls(**found)

    def words(self) -> dict[str, int | float]:
        """What `of` reads."""
        rate = {} if self.lr is None else {"lr": self.lr}
        return {"local-epochs": self.epochs, "proximal-mu": self.mu, "seed": self.seed, **rate}


@dataclass(frozen=True)
class Score:
    accuracy: float  # a fraction
    loss: float  # cross-entropy
    examples: int


class Client:
    """A trainer that any client of a federation may use, one after the other."""

    def __init__(self, program: Any, statistics: bool = False) -> None:
        self.trainer = opened(program)
        self.statistics = statistics  # whether running statistics travel, too
        self._fresh = self.trainer.save()

    def take(self, arrays: Mapping[str, Any]) -> None:
        """A fresh program with these parameters."""
        self.trainer.load(self._fresh)
        held = statistics(self.trainer).keys() if self.statistics else set()
        set_trained(self.trainer, {n: a for n, a in arrays.items() if n not in held})
        if held:
            set_statistics(self.trainer, {n: arrays[n] for n in held if n in arrays})

    def give(self) -> Arrays:
        found = trained(self.trainer)
        return found | (statistics(self.trainer) if self.statistics else {})

    def train(
        self, arrays: Mapping[str, Any], data: Any, local: Local, turn: int = 0, number: int = 0
    ) -> tuple[Arrays, float]:
        """What the parameters become in round `turn` with client `number`, and the mean loss."""
        self.take(arrays)
        loss = self.learn(data, local, turn, number)
        return self.give(), loss

    def learn(self, data: Any, local: Local, turn: int, number: int) -> float:
        """Train what was taken; the mean loss."""
        random = np.random.default_rng((local.seed, turn, number))
        self.trainer.seed(int(random.integers(2**31)))  # of dropout
        return train(self.trainer, data.x, data.y, local, random)

    def judge(self, arrays: Mapping[str, Any], x: Array, y: Array) -> Score:
        self.take(arrays)
        return judged(self.trainer, x, y)


def opened(program: Any) -> Trainer:
    """A program, a trainer of one, or the path of a saved one, ready to train."""
    if isinstance(program, Trainer):
        return program
    if isinstance(program, (str, Path)):
        program = whet.load(program)
    loaded: Trainer = program.load()
    return loaded


def train(trainer: Trainer, x: Array, y: Array, local: Local, random: np.random.Generator) -> float:
    """Train some epochs in random order; returns the mean loss of the steps.

    The last batch of an epoch is filled up with samples that were there already. FedProx adds
    mu * (w - w_global) to the gradient. A compiled step does not know w_global; after the step,
    lr * mu * (w - w_global) is subtracted, with w as it was before the step. For SGD without
    momentum that is the same update. Other optimizers get the proximal term beside their step, not
    through their moments. Where integers are stored without a carry or master, it is rounded.
    """
    samples, size = Samples.of((x,), y), trainer.program.batch
    if not len(samples):
        raise DataError("a client has no samples to train on")
    anchor = trained(trainer) if local.mu else {}
    pull = np.float32(local.mu * (trainer.program.lr if local.lr is None else local.lr))
    losses = []
    for _ in range(local.epochs):
        order = random.permutation(len(samples))
        filled = np.concatenate([order, np.resize(order, -len(order) % size)])
        for inputs, labels in samples.batches(filled, size):
            before = trained(trainer) if local.mu else {}
            losses.append(trainer.step(inputs[0], labels, lr=local.lr))
            if local.mu:
                after = trained(trainer)
                set_trained(
                    trainer, {n: w - pull * (before[n] - anchor[n]) for n, w in after.items()}
                )
    return float(np.mean(losses))


def check_labels(scores: Array, labels: Array) -> None:
    if scores.ndim != 2 or scores.shape[1] < 2:
        shape = "x".join(map(str, scores.shape[1:])) or "one number"
        raise DataError(
            f"the output of a sample is {shape}, not a score for each class",
            try_="a model that classifies, or a loop of your own around Client.train",
        )
    if not 0 <= labels.min() <= labels.max() < scores.shape[1]:
        raise DataError(
            f"labels are {labels.min()} to {labels.max()}, the model has {scores.shape[1]} classes",
            try_="labels that count from 0",
        )


def judged(trainer: Trainer, x: Array, y: Array) -> Score:
    """Accuracy and cross-entropy on these samples."""
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"labels of {y.dtype} and shape {y.shape} name no classes")
    if not len(y):
        raise DataError("there are no samples to judge by")
    right, loss = 0, 0.0
    for (inputs, labels), count in Samples.of((np.asarray(x),), y).padded(trainer.program.batch):
        scores, labels = trainer.predict(inputs[0])[:count].astype(np.float64), labels[:count]
        check_labels(scores, labels)
        right += int((scores.argmax(1) == labels).sum())
        scores -= scores.max(1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        loss -= float(logs[np.arange(count), labels].sum())
    return Score(right / len(y), loss / len(y), len(y))
