"""What is told of a training as it goes on, and may ask it to stop, evaluate or save.

A callback is told by methods named after events. Each may return a `Control`; nothing else that it
does has an effect on the training.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BuildError, DataError
from ..writing import write_whole

__all__ = ["CSVLogger", "Callback", "Control", "EarlyStopping", "ModelCheckpoint", "State"]

EVENTS = (
    "train_begin", "epoch_begin", "step_begin", "step_end", "log", "evaluate", "save", "epoch_end",
    "train_end",
)  # fmt: skip


@dataclass(frozen=True)
class State:
    """Where the training is. Epochs count from 0; `step` is the number of steps made so far."""

    epoch: int
    epochs: int
    step: int
    position: int  # of the next batch in the epoch
    steps: int | None  # of an epoch, if that is known
    lr: float
    logs: Mapping[str, float]  # of this event
    history: Mapping[str, Sequence[float]]  # of epochs that have ended
    monitors: tuple[str, ...]  # names that the logs of an epoch have
    save: Callable[[], bytes]  # the parameters and state now, as `Trainer.save` gives them


@dataclass(frozen=True)
class Control:
    """What a callback asks for."""

    stop: bool = False  # at any event: no further step is made
    evaluate: bool = False  # at the end of a step
    save: bool = False  # at the end of a step
    weights: bytes | None = None  # at the end of training: to end with these of `State.save`

    def __or__(self, other: Control) -> Control:
        return Control(
            self.stop or other.stop,
            self.evaluate or other.evaluate,
            self.save or other.save,
            self.weights if other.weights is None else other.weights,
        )


class Callback:
    """Base class: override the events of interest."""

    def on_train_begin(self, state: State) -> Control | None: ...

    def on_epoch_begin(self, state: State) -> Control | None: ...

    def on_step_begin(self, state: State) -> Control | None: ...

    def on_step_end(self, state: State) -> Control | None: ...

    def on_log(self, state: State) -> Control | None: ...

    def on_evaluate(self, state: State) -> Control | None: ...

    def on_save(self, state: State) -> Control | None: ...

    def on_epoch_end(self, state: State) -> Control | None: ...

    def on_train_end(self, state: State) -> Control | None: ...

    def state_dict(self) -> dict[str, Any]:
        """What it has to remember if the run is stopped: numbers, texts, bytes, lists of these."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Best:
    """The best value of a quantity so far. "auto" takes accuracies and areas as better if high."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in ("auto", "min", "max"):
            raise DataError(f"mode={mode!r} is unknown", try_='"auto", "min" or "max"')
        high = mode == "max" or (mode == "auto" and ("acc" in monitor or monitor.endswith("auc")))
        self.monitor, self.sign, self.min_delta = monitor, 1.0 if high else -1.0, abs(min_delta)
        self.value: float | None = None

    def check(self, state: State) -> None:
        if self.monitor not in state.monitors:
            raise DataError(
                f"there is no {self.monitor!r} to monitor",
                why=f"an epoch logs {', '.join(state.monitors)}",
                try_="fit(..., validation_data=...)" if self.monitor.startswith("val_") else "",
            )

    def improves(self, value: float) -> bool:
        """Whether this is better than all before; it is then the best."""
        if math.isnan(value):
            return False
        if self.value is not None and self.sign * (value - self.value) <= self.min_delta:
            return False
        self.value = value
        return True


class EarlyStopping(Callback):
    """Stop if a quantity has not improved by more than `min_delta` for `patience` epochs.

    With `restore_best_weights`, training ends with the weights and state of the best epoch, whether
    it was stopped or not.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        patience: int = 0,
        mode: str = "auto",
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        self.monitor, self.mode, self.min_delta, self.patience = monitor, mode, min_delta, patience
        self.restore_best_weights, self.start_from_epoch = restore_best_weights, start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self._best = Best(self.monitor, self.mode, self.min_delta)
        self.wait, self.stopped_epoch = 0, 0
        self.best_epoch: int | None = None
        self._weights: bytes | None = None

    @property
    def best(self) -> float | None:
        return self._best.value

    def on_train_begin(self, state: State) -> None:
        self._reset()
        self._best.check(state)

    def on_epoch_end(self, state: State) -> Control | None:
        if state.epoch < self.start_from_epoch:
            return None
        if self._best.improves(state.logs[self.monitor]):
            self.wait, self.best_epoch = 0, state.epoch
            self._weights = state.save() if self.restore_best_weights else None
            return None
        self.wait += 1
        if self.wait < self.patience:
            return None
        self.stopped_epoch = state.epoch
        return Control(stop=True)

    def on_train_end(self, state: State) -> Control | None:
        return Control(weights=self._weights)

    def state_dict(self) -> dict[str, Any]:
        numbers = {"best": self.best, "best_epoch": self.best_epoch, "wait": self.wait}
        return {**numbers, "stopped_epoch": self.stopped_epoch, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best.value, self._weights = state["best"], state["weights"]
        self.best_epoch, self.wait = state["best_epoch"], state["wait"]
        self.stopped_epoch = state["stopped_epoch"]


class ModelCheckpoint(Callback):
    """Write checkpoints that `Trainer.load` reads, after each epoch or every `save_freq` steps.

    The path may name numbers, as in `"{epoch:02d}-{val_loss:.3f}.ckpt"`; epochs count from 1 here.
    With `save_best_only`, only if a quantity is better than after any epoch before.
    """

    def __init__(
        self,
        filepath: str | Path,
        monitor: str = "val_loss",
        save_best_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        if save_freq != "epoch" and (not isinstance(save_freq, int) or save_freq < 1):
            raise DataError(f"save_freq={save_freq!r} is no number of steps", try_='"epoch"')
        if save_best_only and save_freq != "epoch":
            raise DataError("what is best is known after an epoch", try_='save_freq="epoch"')
        self.filepath, self.save_freq, self.save_best_only = (
            str(filepath),
            save_freq,
            save_best_only,
        )
        self.monitor, self.mode = monitor, mode
        self._best = Best(monitor, mode)

    def on_train_begin(self, state: State) -> None:
        self._best = Best(self.monitor, self.mode)
        if self.save_best_only:
            self._best.check(state)
        known = state.monitors if self.save_freq == "epoch" else ("loss",)
        self._path(state, dict.fromkeys(known, 0.0))

    def on_step_end(self, state: State) -> None:
        if self.save_freq != "epoch" and state.step % int(self.save_freq) == 0:
            self._write(state)

    def on_epoch_end(self, state: State) -> None:
        if self.save_freq != "epoch":
            return
        if not self.save_best_only or self._best.improves(state.logs[self.monitor]):
            self._write(state)

    def _path(self, state: State, logs: Mapping[str, float]) -> Path:
        numbers = {**logs, "epoch": state.epoch + 1, "step": state.step}
        try:
            return Path(self.filepath.format(**numbers))
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise DataError(
                f"cannot name a checkpoint by {self.filepath!r}",
                why=f"{type(error).__name__}: {error}",
                try_=f"names such as {', '.join('{' + name + '}' for name in numbers)}",
            ) from error

    def _write(self, state: State) -> None:
        written(self._path(state, state.logs), state.save())

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best.value = state["best"]


class CSVLogger(Callback):
    """Write a table with a row for each epoch. It is written anew each time, and so never torn."""

    def __init__(self, filename: str | Path, separator: str = ",") -> None:
        self.filename, self.separator = Path(filename), separator

    def on_epoch_end(self, state: State) -> None:
        text, names = io.StringIO(), list(state.history)
        table = csv.writer(text, delimiter=self.separator, lineterminator="\n")
        table.writerow(["epoch", *names])
        columns = (state.history[name] for name in names)
        table.writerows([i, *row] for i, row in enumerate(zip(*columns, strict=True)))
        written(self.filename, text.getvalue().encode())


class Logger(Callback):
    """Hands what is logged to an object with `log(dict, step=)`, as trackers have it."""

    def __init__(self, to: Any) -> None:
        self.to = to

    def on_log(self, state: State) -> None:
        self.to.log(dict(state.logs), step=state.step)


def written(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error


def callbacks_of(given: Any) -> list[Callback]:
    """Callbacks as they are, and loggers as callbacks."""
    if isinstance(given, Callback) or callable(getattr(given, "log", None)):
        given = [given]
    return [callback_of(one) for one in given]


def callback_of(one: Any) -> Callback:
    if isinstance(one, Callback):
        return one
    if isinstance(one, type) or not callable(getattr(one, "log", None)):
        raise DataError(
            f"{one!r} is no callback",
            try_=("a subclass of whet.callbacks.Callback", "an object with log(dict, step=)"),
        )
    return Logger(one)
