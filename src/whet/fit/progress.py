"""How far a training has come: a bar with the time left, and a line for each epoch."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..errors import DataError
from .callbacks import Callback, State


class Lines(Callback):
    """A line for each epoch."""

    def on_train_begin(self, state: State) -> None:
        from rich.console import Console

        self.console = Console(highlight=False, soft_wrap=True)

    def on_epoch_begin(self, state: State) -> None:
        self.began = time.monotonic()

    def on_epoch_end(self, state: State) -> None:
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in state.logs.items())
        seconds = time.monotonic() - self.began
        words = f"epoch {state.epoch + 1}/{state.epochs}  {numbers}  {seconds:.1f} s"
        self.console.print(words, markup=False)

    def close(self) -> None:
        """However the training ended."""


class Bar(Lines):
    """And a bar over all epochs, with the time left."""

    bar: Any = None

    def on_train_begin(self, state: State) -> None:
        from rich import progress

        super().on_train_begin(state)
        columns = (
            progress.TextColumn("{task.description}"), progress.BarColumn(),
            progress.MofNCompleteColumn(), progress.TextColumn("loss {task.fields[loss]:.4f}"),
            progress.TimeElapsedColumn(), "left", progress.TimeRemainingColumn(),
        )  # fmt: skip
        self.bar = progress.Progress(*columns, console=self.console)
        self.task = self.bar.add_task("", total=None, loss=float("nan"))
        self.bar.start()

    def on_epoch_begin(self, state: State) -> None:
        super().on_epoch_begin(state)
        words = f"epoch {state.epoch + 1}/{state.epochs}"
        total = None if state.steps is None else state.steps * state.epochs
        self.bar.update(self.task, description=words, total=total, completed=state.step)

    def on_step_end(self, state: State) -> None:
        self.bar.update(self.task, completed=state.step, loss=state.logs["loss"])

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def progress_of(verbose: Any) -> Lines | None:
    """1 is a bar, 2 a line for each epoch, 0 nothing; "auto" is a bar on a terminal."""
    if verbose == "auto":
        verbose = 1 if sys.stdout.isatty() else 2
    if verbose not in (0, 1, 2):
        raise DataError(f"verbose={verbose!r} is unknown", try_='"auto", 0, 1 or 2')
    return {0: None, 1: Bar(), 2: Lines()}[int(verbose)]
