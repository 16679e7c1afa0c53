"""Learning rates: a number, a function of the step, or a scheduler of PyTorch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import DataError

Logs = Mapping[str, float]
FORMS = "a number, a torch learning-rate scheduler, or a function of the step"
BY_STEP = ("OneCycleLR", "CyclicLR")  # PyTorch documents these to be stepped after each batch
BY_LOSS = "ReduceLROnPlateau"


class Rate:
    """The learning rate of each step, and what is to be done after steps and epochs."""

    def __init__(self, of: Callable[[int], float]) -> None:
        self.of = of

    def at(self, step: int) -> float:
        """Of the step with this number, from 0 on."""
        rate = float(self.of(step))
        if not math.isfinite(rate) or rate < 0:
            raise DataError(f"the learning rate of step {step} is {rate}")
        return rate

    def after_step(self) -> None:
        pass

    def after_epoch(self, logs: Logs) -> None:
        pass

    @property
    def place(self) -> int:
        """How far what decides has come before the first step."""
        return 0

    def known(self, steps: int) -> float:
        """A rate to compare with that of the same run: of the last of these steps, if any."""
        return self.at(max(steps - 1, 0))

    def go_on(self, place: int, steps: int, epochs: Sequence[Logs]) -> None:
        """A run that began at this place has made these steps, and epochs that logged this."""


class Scheduled(Rate):
    """PyTorch's scheduler: its optimizer's rate is read before a step.

    Nothing of it is saved: a new one is stepped as often as the old one was.
    """

    def __init__(self, scheduler: Any, interval: str | None) -> None:
        super().__init__(self.read)
        kind = type(scheduler).__name__
        if interval not in (None, "step", "epoch"):
            raise DataError(f"lr_interval={interval!r} is unknown", try_='"step" or "epoch"')
        self.by_loss = kind == BY_LOSS
        self.by_step = (interval or ("step" if kind in BY_STEP else "epoch")) == "step"
        if self.by_step and self.by_loss:
            raise DataError(f"{kind} takes the loss of an epoch", try_='lr_interval="epoch"')
        self.scheduler = scheduler

    def read(self, step: int) -> float:
        rates = {float(group["lr"]) for group in self.scheduler.optimizer.param_groups}
        if len(rates) > 1:
            raise DataError(
                "the scheduler's optimizer has groups with different learning rates",
                why=f"they are {', '.join(f'{rate:g}' for rate in sorted(rates))}",
                try_="one group: a program has one learning rate",
            )
        return rates.pop()

    def after_step(self) -> None:
        if self.by_step:
            self.advance()

    def after_epoch(self, logs: Logs) -> None:
        if not self.by_step:
            self.advance(*([logs.get("val_loss", logs["loss"])] if self.by_loss else []))

    def advance(self, *metrics: float) -> None:
        with warnings.catch_warnings():  # the optimizer that it expects to have stepped is in C
            warnings.filterwarnings("ignore", "Detected call of")
            self.scheduler.step(*metrics)

    @property
    def place(self) -> int:
        return int(getattr(self.scheduler, "last_epoch", 0))

    def go_on(self, place: int, steps: int, epochs: Sequence[Logs]) -> None:
        done = self.place - place  # not 0 if it is the object of the run that was stopped
        if self.by_step:
            for _ in range(steps - done):
                self.advance()
        else:
            for logs in epochs[done:]:
                self.after_epoch(logs)


def rate_of(lr: Any, interval: str | None, default: float) -> Rate:
    if callable(getattr(lr, "step", None)) and hasattr(lr, "optimizer"):
        return Scheduled(lr, interval)
    if interval is not None:
        raise DataError("lr_interval= is for schedulers", why=f"lr is {lr!r}")
    if lr is None:
        return Rate(lambda step: default)
    if callable(lr):
        return Rate(lr)
    try:
        number = float(lr)
    except (TypeError, ValueError):
        raise DataError(f"lr={lr!r} is no learning rate", try_=FORMS) from None
    return Rate(lambda step: number)
