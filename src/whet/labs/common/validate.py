"""How good a trained program is: its accuracy and loss on held-out samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...fit.metrics import classes_second
from ...runtime import Trainer
from ...workbench import Classes
from .data import Samples

DIVERGED = math.inf  # the loss of training that diverged


@dataclass(frozen=True)
class Outcome:
    """The validation accuracy and loss of a trained candidate."""

    accuracy: float  # percent; NaN where there are no classes
    loss: float
    epochs: int
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has neither NaN nor infinity."""
        return {k: v if math.isfinite(v) else None for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> Outcome:
        known = {k: v for k, v in words.items() if v is not None}
        return cls(**{"accuracy": math.nan, "loss": DIVERGED, **known})

    def __str__(self) -> str:
        percent = "" if math.isnan(self.accuracy) else f"{self.accuracy:.2f} %, "
        return f"{percent}loss {self.loss:.4f}"

    @property
    def diverged(self) -> bool:
        return not math.isfinite(self.loss)

    @classmethod
    def mean(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """Of one candidate on several splits; diverged if it diverged on any."""
        for outcome in outcomes:
            if outcome.diverged:
                return outcome
        accuracy = round(statistics.fmean(o.accuracy for o in outcomes), 4)
        loss = rounded(statistics.fmean(o.loss for o in outcomes))
        return cls(accuracy, loss, outcomes[0].epochs, round(sum(o.seconds for o in outcomes), 2))

    def gain(self, measure: str, base: Outcome) -> float:
        """Points of accuracy above another outcome, or of loss below it."""
        if measure == "accuracy":
            return self.accuracy - base.accuracy
        return base.loss - self.loss


def validated(
    trainer: Trainer, samples: Samples, batch: int, classes: Classes | None, epochs: int
) -> Outcome:
    """Accuracy and plain cross-entropy; the model's own loss alone where there are no classes."""
    right, counted, loss = 0, 0, 0.0
    for (x, y), count in samples.padded(batch):
        scores, labels = trainer.predict(x)[:count], y[:count]
        if classes is None or not classes_second(scores.shape, labels.shape):
            return Outcome(math.nan, mean_loss(trainer, samples, batch), epochs)
        seen = labels != classes.ignored
        right += int((scores.argmax(1) == labels)[seen].sum())
        logits = scores.astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        index = np.expand_dims(np.where(seen, labels, 0), 1)
        loss -= float(np.take_along_axis(logs, index, 1).squeeze(1)[seen].sum())
        counted += int(seen.sum())
    mean = loss / max(counted, 1)
    mean = rounded(mean) if math.isfinite(mean) else DIVERGED
    return Outcome(round(100 * right / max(counted, 1), 4), mean, epochs)


def mean_loss(trainer: Trainer, samples: Samples, batch: int) -> float:
    """By steps at learning rate 0, after which state is restored."""
    saved = trainer.save()
    every = np.arange(len(samples))
    try:
        losses = [trainer.step(x, y, lr=0.0) for x, y in samples.batches(every, batch)]
    finally:
        trainer.load(saved)
    return float(np.mean(losses))


def rounded(number: float) -> float:
    """To seven significant digits."""
    return float(f"{number:.7g}")
