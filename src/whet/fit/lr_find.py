"""The learning-rate range test (Smith, arXiv:1506.01186): losses at rates that grow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DataError, NotFinite
from ..report.curves import curves_svg
from .data import source_of
from .loop import stepped
from .partial import Filling

if TYPE_CHECKING:
    from ..runtime import Trainer

MEMORY = 0.98  # the weight of earlier losses in the smoothed one
DIVERGED = 4.0  # times the lowest smoothed loss, of those behind the first
FIRST = 10  # steps whose mean says little


@dataclass(frozen=True)
class FoundRate:
    """`lr` is in the middle of where the smoothed loss falls; `losses` are those at `rates`."""

    lr: float
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]

    def __float__(self) -> float:
        return self.lr

    def __repr__(self) -> str:
        return f"<FoundRate {self.lr:.3g}, of {len(self.rates)} rates>"

    def svg(self) -> str:
        curve = {"smoothed loss": list(zip(self.rates, self.smoothed, strict=True))}
        title, about = "Learning rates", f"the loss falls steadily around {self.lr:.3g}"
        marks = {self.lr: f"{self.lr:.3g}"}
        return curves_svg({"loss": curve}, title, about, "learning rate", log=True, marks=marks)

    def _repr_svg_(self) -> str:
        return self.svg()


def lr_find(
    trainer: Trainer, data: Any, start: float, end: float, steps: int, seed: int
) -> FoundRate:
    if not 0 < start < end < math.inf or steps < 8:
        raise DataError(
            f"no rates from {start:g} to {end:g} in {steps} steps",
            try_="0 < start < end, and 8 steps or more",
        )
    rates = [start * (end / start) ** (i / (steps - 1)) for i in range(steps)]
    saved = trainer.save()
    try:
        losses = losses_at(trainer, data, rates, seed)
    finally:
        trainer.load(saved)
    if len(losses) < 3:
        raise DataError(f"the loss is not finite at a rate of {rates[len(losses)]:g}",
                        try_=f"start={start / 1000:g}")  # fmt: skip
    curve = smooth(losses)
    return FoundRate(rates[valley(curve)], tuple(rates[: len(losses)]), tuple(losses), tuple(curve))


def valley(curve: list[float]) -> int:
    """The middle of the longest fall, as fastai's suggestion of this name.

    The fall is the longest subsequence of ever lower losses, as many places long as it has members.
    """
    longest, end = [1] * len(curve), 0
    for i, loss in enumerate(curve):
        longest[i] += max((longest[j] for j in range(i) if curve[j] > loss), default=0)
        end = i if longest[i] > longest[end] else end
    return end - longest[end] // 2


def losses_at(trainer: Trainer, data: Any, rates: list[float], seed: int) -> list[float]:
    """Until the loss is far above its lowest value, or not finite."""
    source = source_of(data, trainer.program.batch, True, seed)
    filling, losses, epoch = Filling.for_training(trainer, "auto"), list[float](), 0
    while True:
        before = len(losses)
        for batch in source.begin(epoch):
            whole = filling.whole(batch, source.opening)
            try:
                losses.append(stepped(trainer, whole, rates[len(losses)]))
            except NotFinite:
                return losses
            curve = smooth(losses)[FIRST:]
            if len(losses) == len(rates) or (curve and curve[-1] > DIVERGED * min(curve)):
                return losses
        if len(losses) == before:
            raise DataError("the data are empty")
        epoch += 1


def smooth(losses: list[float]) -> list[float]:
    """Exponential means, corrected for their beginning."""
    mean, found = 0.0, []
    for i, loss in enumerate(losses, 1):
        mean = MEMORY * mean + (1 - MEMORY) * loss
        found.append(mean / (1 - MEMORY**i))
    return found
