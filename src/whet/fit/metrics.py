"""What is measured besides the loss: functions of labels and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..emit.program import Program
from ..errors import DataError
from ..ir import Array, DType, Role
from ..runtime.ids import look_ups

Metric = Callable[[Any, Any], float]  # of labels and predictions of some samples
ACCURACY = "accuracy"


@dataclass
class Mean:
    """A mean of numbers that stand for some samples each."""

    total: float = 0.0
    weight: float = 0.0

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Mean:
        return cls(float(saved["total"]), float(saved["weight"]))

    def add(self, value: float, weight: float) -> None:
        self.total += value * weight
        self.weight += weight

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else float("nan")


@dataclass
class Metrics:
    """Functions by name, and their means over the batches seen so far."""

    functions: Mapping[str, Metric]
    ignored: int | None = None  # labels that accuracy does not count
    means: dict[str, Mean] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.means = {name: Mean() for name in self.functions}

    def add(self, y: Any, prediction: Any, count: int) -> None:
        """A batch of `count` samples; accuracy is of the labels that count."""
        for name, function in self.functions.items():
            if function is accuracy:
                seen = y != self.ignored if self.ignored is not None else np.ones(y.shape, bool)
                if seen.any():
                    value = accuracy(y[seen], by_class_last(first(prediction))[seen])
                    self.means[name].add(value, int(seen.sum()))
            else:
                self.means[name].add(float(function(y, prediction)), count)

    @property
    def values(self) -> dict[str, float]:
        return {name: mean.value for name, mean in self.means.items()}


def accuracy(y: Array, scores: Array) -> float:
    """The share of labels whose class, along the last axis, has the highest score."""
    return float((scores.argmax(-1) == y).mean())


def by_class_last(scores: Array) -> Array:
    """PyTorch has the classes second."""
    return np.moveaxis(scores, 1, -1)


def first(prediction: Any) -> Array:
    """A model's first output, by which it classifies if it does."""
    found: Array = prediction[0] if isinstance(prediction, tuple) else prediction
    return found


def metrics_of(metrics: Any, program: Program) -> Metrics:
    """ "auto" is the accuracy if labels are classes; otherwise functions, by name or in a list."""
    ignored = classes(program)
    auto = {} if ignored is None else {ACCURACY: accuracy}
    exempt = ignored[0] if ignored else None
    if metrics is None:
        return Metrics({})
    if isinstance(metrics, str) and metrics == "auto":
        return Metrics(auto, exempt)
    if isinstance(metrics, str) or not isinstance(metrics, (Mapping, Iterable)):
        metrics = [metrics]
    given = metrics if isinstance(metrics, Mapping) else {name_of(m): m for m in metrics}
    if ACCURACY in given and given[ACCURACY] == ACCURACY:
        if not auto:
            raise DataError(
                "the accuracy of this program is unknown",
                why="its labels are not classes that its scores are of",
                try_="metrics=[function of (y, prediction)]",
            )
        given = {**given, ACCURACY: accuracy}
    if wrong := [name for name, function in given.items() if not callable(function)]:
        raise DataError(f"the metric {wrong[0]!r} is unknown", try_='"accuracy", or a function')
    return Metrics(dict(given), exempt)


def name_of(metric: Any) -> str:
    return metric if isinstance(metric, str) else getattr(metric, "__name__", type(metric).__name__)


def classes(program: Program) -> tuple[int | None] | None:
    """The label that does not count, in a tuple, if labels are numbers of classes."""
    step = program.entries["train_step"]
    labels = step.leaves_of(Role.LABEL)
    looked = {look.name: look.exempt for look in look_ups(step, {})}
    if len(labels) != 1 or labels[0].name not in looked or labels[0].type.dtype is not DType.I32:
        return None
    exempt = looked[labels[0].name]
    shapes = program.outputs[0].shape, program.tensors[labels[0].name].shape
    return (exempt if exempt < 0 else None,) if classes_second(*shapes) else None


def classes_second(scores: tuple[int, ...], labels: tuple[int, ...]) -> bool:
    """Whether axis 1 of the scores is that of the classes, and no other axis could be."""
    fits = len(scores) > 1 and (scores[0], *scores[2:]) == labels
    return fits and scores[1] not in labels[1:]
