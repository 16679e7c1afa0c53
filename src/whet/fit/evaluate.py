"""How good a trainer is on some data: its loss and metrics, nothing of it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import DataError
from .data import Batch, Source, source_of
from .metrics import Mean, Metrics, first, metrics_of
from .partial import Filling

if TYPE_CHECKING:
    from ..runtime import Trainer


def evaluate(trainer: Trainer, data: Any, metrics: Any = "auto") -> dict[str, float]:
    source = source_of(data, trainer.program.batch)
    return measured(trainer, source, metrics_of(metrics, trainer.program))


def measured(trainer: Trainer, source: Source, metrics: Metrics) -> dict[str, float]:
    """The means of the loss and of the metrics, by samples.

    The loss is that of training steps at a learning rate of 0. What else they change, such as
    moments and running statistics, is restored.
    """
    filling = Filling(trainer.program, "auto", several=True)
    loss, saved = Mean(), trainer.save()
    metrics.reset()
    try:
        for batch in source.begin(0):
            whole = filling.whole(batch, source.opening)
            if metrics.functions:
                predicted(trainer, batch, whole[0], metrics)
            losses = [trainer.step(one.x, one.y, lr=0.0) for one in whole]
            loss.add(sum(losses) / len(losses), len(batch))
    finally:
        trainer.load(saved)
    if not loss.weight:
        raise DataError("the data to evaluate are empty")
    return {"loss": loss.value, **metrics.values}


def predicted(trainer: Trainer, batch: Batch, whole: Batch, metrics: Metrics) -> None:
    """Add a batch of as many samples as there are: the first ones of a whole one are these."""
    outputs, count = trainer.predict(whole.x), len(batch)
    if isinstance(outputs, tuple):
        outputs = tuple(output[:count] for output in outputs)
    elif count < trainer.program.batch:
        outputs = outputs[:count]
    metrics.add(batch.y, outputs if isinstance(outputs, tuple) else first(outputs), count)
