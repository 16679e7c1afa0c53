"""What a trainer does with whole data: the loop itself is in `whet.fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..fit.history import History
    from ..fit.lr_find import FoundRate
    from .trainer import Trainer

Metrics = str | Callable[[Any, Any], float] | Sequence[Any] | Mapping[str, Any] | None


class Fitting:
    """The part of `Trainer` that takes data, and not batches."""

    history: History | None = None  # of the last `fit`, also if it ended by an error

    def fit(
        self,
        data: Any,
        *,
        epochs: int = 1,
        validation_data: Any = None,
        callbacks: Any = (),
        lr: Any = None,
        lr_interval: str | None = None,
        metrics: Metrics = "auto",
        train_metrics: bool = False,
        partial: str = "auto",
        shuffle: bool = True,
        seed: int = 0,
        resume: str | Path | None = None,
        save_steps: int | None = None,
        save_seconds: float = 60.0,
        log_steps: int | None = None,
        verbose: Any = "auto",
    ) -> History:
        """Train for some epochs; `history["loss"]` of what it returns has the loss of each.

        `data` are two arrays (x, y), shuffled by `seed`, or an iterable of batches (x, y), such as
        a torch DataLoader; x is a tuple for several inputs. `lr` is a number, a scheduler of
        PyTorch, or a function of the step. `metrics` are measured on `validation_data`, and with
        `train_metrics` on the batches before they are trained on, too. A last batch of fewer
        samples takes the step of these samples alone where the program can, and is filled up with
        the first samples of the epoch where it cannot; `partial="wrap"` always fills it up, "drop"
        leaves it out.

        With `resume`, a folder, the run is saved there after each epoch, every `save_seconds` and
        every `save_steps`, and the same call goes on from the last save, to the bit.

        See docs/training.md for callbacks, and for what else is exact.
        """
        from ..fit import loop

        return loop.fit(
            self._trainer, data, epochs=epochs, validation_data=validation_data,
            callbacks=callbacks, lr=lr, lr_interval=lr_interval, metrics=metrics,
            train_metrics=train_metrics, partial=partial, shuffle=shuffle, seed=seed,
            resume=resume, save_steps=save_steps, save_seconds=save_seconds, log_steps=log_steps,
            verbose=verbose,
        )  # fmt: skip

    def partial_fit(self, x: Any, y: Any, lr: float | None = None) -> float:
        """Learn from some more samples, of any number: a step for each batch. Their mean loss."""
        from ..fit import loop

        return loop.partial_fit(self._trainer, x, y, lr)

    def evaluate(self, data: Any, metrics: Metrics = "auto") -> dict[str, float]:
        """The loss and metrics on some data, as `fit` takes it; nothing is changed.

        The loss is the one that training minimises: with dropout and the statistics of the batch
        if the program was compiled from `model.train()`.
        """
        from ..fit.evaluate import evaluate

        return evaluate(self._trainer, data, metrics)

    def lr_find(
        self, data: Any, start: float = 1e-6, end: float = 10.0, steps: int = 100, seed: int = 0
    ) -> FoundRate:
        """Train at rates that grow from `start` to `end`, or until the loss diverges.

        Gives a rate in the middle of where the loss falls, and the curve. Afterwards, parameters
        and state are what they were, to the bit.
        """
        from ..fit.lr_find import lr_find

        return lr_find(self._trainer, data, start, end, steps, seed)

    @property
    def _trainer(self) -> Trainer:
        return cast("Trainer", self)
