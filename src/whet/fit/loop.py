"""The training loop: epochs of steps, and the events that callbacks are told of.

train_begin
  epoch_begin
    step_begin, step_end, then if it is time: evaluate, log, save
  evaluate, log, epoch_end, save
train_end, save
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import DataError, NotFinite
from .callbacks import EVENTS, Callback, Control, State, callbacks_of
from .data import Batch, Source, source_of
from .evaluate import measured, predicted
from .history import History
from .metrics import Mean, Metrics, metrics_of
from .partial import Filling
from .progress import progress_of
from .rates import Rate, rate_of
from .resume import BROKEN, Folder, fingerprint

if TYPE_CHECKING:
    from ..runtime import Trainer


@dataclass(frozen=True)
class Options:
    """The arguments of `Trainer.fit` besides the data."""

    epochs: int = 1
    validation_data: Any = None
    callbacks: Any = ()
    lr: Any = None
    lr_interval: str | None = None
    metrics: Any = "auto"
    train_metrics: bool = False
    partial: str = "auto"
    shuffle: bool = True
    seed: int = 0
    resume: Any = None
    save_steps: int | None = None
    save_seconds: float = 60.0
    log_steps: int | None = None
    verbose: Any = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "save_steps", "log_steps"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and (value is not None or name == "epochs"):
                raise DataError(f"{name}={value!r} is not a whole number of at least 1")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise DataError(f"seed={self.seed!r} is not a whole number of at least 0")


@dataclass
class Place:
    """How far a run has come. All of it is saved."""

    epoch: int = 0
    position: int = 0  # of the next batch
    step: int = 0
    loss: Mean = field(default_factory=Mean)  # of this epoch so far
    finished: bool = False

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Place:
        """ValueError if it is no place, and other errors if it is no record of one."""
        counts = {name: int(saved[name]) for name in ("epoch", "position", "step")}
        if min(counts.values()) < 0:
            raise ValueError(f"{counts} are not counts")
        return cls(**counts, loss=Mean.of(saved["loss"]), finished=bool(saved["finished"]))


class Loop:
    def __init__(self, trainer: Trainer, data: Any, options: Options) -> None:
        program = trainer.program
        self.trainer, self.options = trainer, options
        self.source = source_of(data, program.batch, options.shuffle, options.seed)
        self.validation: Source | None = None
        if options.validation_data is not None:
            self.validation = source_of(options.validation_data, program.batch)
        self.metrics = metrics_of(options.metrics, program)
        own = options.metrics if options.train_metrics else None
        self.train_metrics: Metrics = metrics_of(own, program)
        self.filling = Filling.for_training(trainer, options.partial)
        self.rate: Rate = rate_of(options.lr, options.lr_interval, program.lr)
        self.callbacks = callbacks_of(options.callbacks)
        self.progress = progress_of(options.verbose)
        listeners = [*self.callbacks, *([self.progress] if self.progress else [])]
        self.listeners = {event: listening(listeners, event) for event in EVENTS}
        self.place, self.history = Place(), History()
        self.rate_place, self.lr = self.rate.place, self.rate.known(0)
        self.folder = None if options.resume is None else Folder(options.resume, self.about())
        self.stopped, self.saved_at = False, time.monotonic()
        self.before: bytes | None = None  # the trainer as it was, if a saved run goes on

    def about(self) -> dict[str, Any]:
        """What a run is: it goes on only as the same."""
        options, source = self.options, self.source
        return {
            "program": fingerprint(self.trainer.program),
            "data": source.kind,
            "samples": source.samples,
            "batches": source.steps,
            "validation samples": self.validation.samples if self.validation else None,
            "epochs": options.epochs,
            "seed": options.seed,
            "shuffle": options.shuffle,
            "partial": options.partial,
            "callbacks": [type(c).__name__ for c in self.callbacks if c.state_dict()],
            "metrics": self.monitors,
        }

    @property
    def monitors(self) -> list[str]:
        """What the logs of an epoch have."""
        validated = ["loss", *self.metrics.functions] if self.validation is not None else []
        own = ["loss", *self.train_metrics.functions]
        return [*own, *(f"val_{name}" for name in validated), "lr"]

    # The run --------------------------------------------------------------------------------------

    def run(self) -> History:
        found = self.folder.read() if self.folder is not None else None
        goes_on = self.go_on(found) if found is not None else None
        self.trainer.history = self.history
        if self.place.finished:
            return self.history
        try:
            self.fire("train_begin")
            self.set_callbacks(found)
            if found is None:
                self.save()
            while self.place.epoch < self.options.epochs and not self.stopped:
                self.epoch(goes_on)
                goes_on = None
            self.end()
        finally:
            if self.progress is not None:
                self.progress.close()
        return self.history

    def epoch(self, goes_on: Any) -> None:
        self.fire("epoch_begin")
        for batch in self.batches(goes_on):
            if self.stopped:
                break
            self.step(batch)
        if not self.place.loss.weight:
            if self.stopped:
                return
            raise DataError(
                "the data gave nothing to train on",
                why="no batch is whole, and partial='drop'" if self.place.position else "no batch",
            )
        logs = {"loss": self.place.loss.value, **self.train_metrics.values}
        if self.validation is not None:
            logs |= self.evaluate(self.validation)
        logs["lr"] = self.lr
        self.history.add(logs)
        self.fire("log", logs)
        self.fire("epoch_end", logs)
        self.rate.after_epoch(logs)
        self.place.epoch, self.place.position, self.place.loss = self.place.epoch + 1, 0, Mean()
        self.train_metrics.reset()
        if not self.stopped:
            self.save()

    def batches(self, goes_on: Any) -> Iterator[Batch]:
        """Those that are left of this epoch; as before if they are not those of the saved run."""
        try:
            return self.source.begin(self.place.epoch, self.place.position, goes_on)
        except DataError:
            if self.before is not None:
                self.trainer.load(self.before)
            raise

    def step(self, batch: Batch) -> None:
        place = self.place
        self.lr = self.rate.at(place.step)
        self.fire("step_begin")
        whole = self.filling.whole(batch, self.source.opening)
        place.position += 1
        if not whole:
            return
        if self.train_metrics.functions:
            predicted(self.trainer, batch, whole[0], self.train_metrics)
        loss = stepped(self.trainer, whole, self.lr)
        place.loss.add(loss, len(batch))
        place.step += 1
        self.rate.after_step()
        logs = {"loss": loss}
        control = self.fire("step_end", logs)
        if control.evaluate and self.validation is not None:
            logs |= self.evaluate(self.validation)
        steps = self.options.log_steps
        if control.evaluate or (steps is not None and place.step % steps == 0):
            self.fire("log", {**logs, "lr": self.lr})
        if not self.stopped and (control.save or self.is_due()):
            self.save()

    def evaluate(self, validation: Source) -> dict[str, float]:
        found = measured(self.trainer, validation, self.metrics)
        logs = {f"val_{name}": value for name, value in found.items()}
        self.fire("evaluate", logs)
        return logs

    def end(self) -> None:
        control = self.fire("train_end")
        if control.weights is not None:
            self.trainer.load(control.weights)
        self.place.finished = True
        self.save()

    # Events ---------------------------------------------------------------------------------------

    def fire(self, event: str, logs: Mapping[str, float] | None = None) -> Control:
        """Tell all who listen, in order; what any of them asks for."""
        control = Control()
        if not self.listeners[event]:
            return control
        state = self.state(logs or {})
        for callback in self.listeners[event]:
            answer = getattr(callback, f"on_{event}")(state)
            if answer is not None and not isinstance(answer, Control):
                raise DataError(
                    f"{type(callback).__name__}.on_{event} returned {answer!r}",
                    try_="None, or a whet.callbacks.Control",
                )
            control = control | (answer or Control())
        self.stopped |= control.stop
        return control

    def state(self, logs: Mapping[str, float]) -> State:
        place = self.place
        return State(
            epoch=place.epoch,
            epochs=self.options.epochs,
            step=place.step,
            position=place.position,
            steps=self.source.steps,
            lr=self.lr,
            logs=MappingProxyType(dict(logs)),
            history=MappingProxyType({n: tuple(v) for n, v in self.history.history.items()}),
            monitors=tuple(self.monitors),
            save=self.trainer.save,
        )

    # Saving and going on --------------------------------------------------------------------------

    def is_due(self) -> bool:
        steps, seconds = self.options.save_steps, self.options.save_seconds
        by_step = steps is not None and self.place.step % steps == 0
        return by_step or time.monotonic() - self.saved_at >= seconds

    def save(self) -> None:
        if self.folder is None:
            return
        place = self.place
        self.folder.write({
            "place": {**vars(place), "loss": vars(place.loss)},
            "train_metrics": {n: vars(m) for n, m in self.train_metrics.means.items()},
            "history": self.history.history,
            "rate": {
                "place": self.rate_place, "last": self.lr, "known": self.rate.known(place.step),
            },
            "data": self.source.state(place.position),
            "callbacks": [c.state_dict() for c in self.callbacks if c.state_dict()],
            "trainer": self.trainer.save(),
        })  # fmt: skip
        self.saved_at = time.monotonic()
        self.fire("save")

    def go_on(self, found: dict[str, Any]) -> Any:
        """Set back everything but callbacks to what was saved; what the data were saved as."""
        assert self.folder is not None
        try:
            place = Place.of(found["place"])
            means = {n: Mean.of(found["train_metrics"][n]) for n in self.train_metrics.means}
            history = History()
            names = {**found["history"]}
            for row in zip(*names.values(), strict=True):
                history.add(dict(zip(names, map(float, row), strict=True)))
            began, known = int(found["rate"]["place"]), float(found["rate"]["known"])
            self.lr = float(found["rate"]["last"])
            weights, data = bytes(found["trainer"]), found["data"]
        except BROKEN as error:
            raise self.folder.damaged(error) from error
        self.rate.go_on(began, place.step, history.rows)
        self.check_rate(known, place.step)
        self.before = self.trainer.save()
        self.trainer.load(weights)
        self.place, self.history, self.rate_place = place, history, began
        self.train_metrics.means = means
        return data

    def check_rate(self, known: float, steps: int) -> None:
        if (now := self.rate.known(steps)) != known:
            assert self.folder is not None
            raise DataError(
                f"the learning rate of {self.folder.path} was another",
                why=f"after {steps} steps it was {known:g}, and is {now:g} now",
                try_="the same lr as before; a new scheduler is stepped to where it was",
            )

    def set_callbacks(self, found: dict[str, Any] | None) -> None:
        if found is None or self.folder is None:
            return
        own = [callback for callback in self.callbacks if callback.state_dict()]
        try:
            for callback, state in zip(own, found["callbacks"], strict=True):
                callback.load_state_dict(state)
        except BROKEN as error:
            raise self.folder.damaged(error) from error


def listening(callbacks: list[Callback], event: str) -> list[Callback]:
    """Those that override this event."""
    name = f"on_{event}"
    return [c for c in callbacks if getattr(type(c), name) is not getattr(Callback, name)]


def stepped(trainer: Trainer, whole: list[Batch], lr: float) -> float:
    """One step on batches that stand for one; their mean loss."""
    if len(whole) == 1:
        return trainer.step(whole[0].x, whole[0].y, lr=lr)
    saved = trainer.save()
    try:
        losses = [trainer.gradients(batch.x, batch.y) for batch in whole]
    except (NotFinite, DataError):
        trainer.load(saved)
        raise
    trainer.apply(lr, scale=1 / len(whole))
    return sum(losses) / len(losses)


def fit(trainer: Trainer, data: Any, **options: Any) -> History:
    return Loop(trainer, data, Options(**options)).run()


def partial_fit(trainer: Trainer, x: Any, y: Any, lr: float | None) -> float:
    """Steps on all these samples, in their order; their mean loss."""
    source = source_of((x, y), trainer.program.batch)
    filling, rate, loss = Filling.for_training(trainer, "auto"), trainer.program.lr, Mean()
    for batch in source.begin(0):
        whole = filling.whole(batch, source.opening)
        loss.add(stepped(trainer, whole, rate if lr is None else lr), len(batch))
    return loss.value
