"""EarlyStopping, ModelCheckpoint, CSVLogger and loggers, on numbers that are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitted import program, samples
from whet.callbacks import Callback, CSVLogger, EarlyStopping, ModelCheckpoint, State
from whet.errors import BuildError, DataError

X, Y = samples(8)


class Numbers:
    """A metric that takes given values, one for each epoch."""

    def __init__(self, *values: float) -> None:
        self.values = iter(values)
        self.__name__ = "given"

    def __call__(self, y: Any, prediction: Any) -> float:
        return next(self.values)


def fitted(values: tuple[float, ...], callback: Any) -> Any:
    """A run whose `val_given` is this after each epoch."""
    trainer = program().load()
    trainer.fit((X, Y), epochs=len(values), validation_data=(X[:4], Y[:4]), verbose=0,
                metrics=Numbers(*values), callbacks=callback)  # fmt: skip
    return trainer


@pytest.mark.parametrize(
    ("values", "words", "epochs", "best"),
    [
        ((3, 2, 2, 2, 2), {"patience": 2}, 4, 1),
        ((3, 2, 2, 1, 2), {"patience": 2}, 5, 3),
        ((3, 2, 2, 2, 2), {"patience": 0}, 3, 1),
        ((3, 2.9, 2.8, 2.7), {"patience": 2, "min_delta": 0.5}, 3, 0),
        ((1, 2, 2, 2), {"patience": 1, "mode": "max"}, 3, 1),
        ((1, 2, 3, 4), {"patience": 1, "start_from_epoch": 2}, 4, 2),
        ((3, float("nan"), float("nan")), {"patience": 2}, 3, 0),
    ],
)
def test_training_stops_when_nothing_improves(
    values: tuple[float, ...], words: dict[str, Any], epochs: int, best: int
) -> None:
    stopping = EarlyStopping("val_given", **words)
    trainer = fitted(values, stopping)
    assert len(trainer.history.epoch) == epochs
    assert (stopping.best_epoch, stopping.best) == (best, values[best])
    stopped = stopping.wait > 0 and stopping.wait >= stopping.patience
    assert stopping.stopped_epoch == (epochs - 1 if stopped else 0)


class Kept(Callback):
    """The weights after each epoch."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []

    def on_epoch_end(self, state: State) -> None:
        self.blobs.append(state.save())


@pytest.mark.parametrize("values", [(3, 1, 2, 2), (3, 1, 2)], ids=["stopped", "out of epochs"])
def test_the_best_weights_are_restored_bit_for_bit(values: tuple[float, ...]) -> None:
    kept = Kept()
    stopping = EarlyStopping("val_given", patience=2, restore_best_weights=True)
    trainer = fitted(values, [kept, stopping])
    assert trainer.save() == kept.blobs[1] and len(set(kept.blobs)) == len(values)


def test_a_callback_can_be_used_again() -> None:
    stopping = EarlyStopping("val_given", patience=1)
    assert len(fitted((1, 2, 2), stopping).history.epoch) == 2
    assert len(fitted((5, 4, 3), stopping).history.epoch) == 3


@pytest.mark.parametrize("make", [EarlyStopping, lambda: ModelCheckpoint("x", save_best_only=True)])
def test_what_is_not_logged_cannot_be_monitored(make: Callable[[], Callback]) -> None:
    trainer = program().load()
    before = trainer.save()
    with pytest.raises(DataError, match="no 'val_loss' to monitor") as raised:
        trainer.fit((X, Y), callbacks=make(), verbose=0)
    assert "validation_data=" in str(raised.value) and trainer.save() == before


def test_checkpoints_are_named_by_numbers_and_hold_the_epochs(tmp_path: Path) -> None:
    kept = Kept()
    every = ModelCheckpoint(tmp_path / "new" / "{epoch:02d}-{val_given:.1f}.ckpt")
    best = ModelCheckpoint(tmp_path / "best.ckpt", "val_given", save_best_only=True)
    fitted((3, 1, 2), [kept, every, best])
    found = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert found == dict(
        zip(("01-3.0.ckpt", "02-1.0.ckpt", "03-2.0.ckpt"), kept.blobs, strict=True)
    )
    assert (tmp_path / "best.ckpt").read_bytes() == kept.blobs[1]
    other = program().load()
    other.load(tmp_path / "best.ckpt")
    assert other.save() == kept.blobs[1]


def test_checkpoints_of_steps(tmp_path: Path) -> None:
    by_step = ModelCheckpoint(tmp_path / "{step}.ckpt", save_freq=3)
    program().load().fit((X, Y), epochs=4, callbacks=by_step, verbose=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.ckpt", "6.ckpt"]


def test_names_and_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    trainer = program().load()
    with pytest.raises(DataError, match="cannot name a checkpoint") as raised:
        trainer.fit((X, Y), callbacks=ModelCheckpoint(tmp_path / "{val_f1}"), verbose=0)
    assert "names such as {loss}" in str(raised.value)
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match="cannot write"):
        trainer.fit((X, Y), callbacks=ModelCheckpoint(tmp_path / "file" / "x"), verbose=0)
    for words in ({"save_freq": 0}, {"save_freq": 2, "save_best_only": True}, {"mode": "up"}):
        with pytest.raises(DataError):
            ModelCheckpoint("x", **words)


def test_a_table_has_the_numbers_of_the_history(tmp_path: Path) -> None:
    trainer = fitted((3, 1, 2), CSVLogger(tmp_path / "log.csv", separator=";"))
    rows = [line.split(";") for line in (tmp_path / "log.csv").read_text().splitlines()]
    assert rows[0] == ["epoch", *trainer.history.history]
    columns = list(zip(*rows[1:], strict=True))
    assert columns[0] == ("0", "1", "2")
    assert [list(map(float, c)) for c in columns[1:]] == list(trainer.history.history.values())


def test_what_cannot_be_remembered_is_refused(tmp_path: Path) -> None:
    class Arrays(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"seen": X}

    with pytest.raises(DataError, match="what a callback has to remember cannot be saved"):
        program().load().fit((X, Y), callbacks=Arrays(), resume=tmp_path, verbose=0)
    assert list(tmp_path.iterdir()) == []


class Tracker:
    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.seen.append((step, numbers))


def test_any_object_with_log_is_a_logger() -> None:
    tracker = Tracker()
    trainer = program().load()
    history = trainer.fit((X, Y), epochs=2, callbacks=tracker, log_steps=1, verbose=0, lr=0.1)
    assert [step for step, _ in tracker.seen] == [1, 2, 2, 3, 4, 4]
    assert [set(numbers) for _, numbers in tracker.seen[:3]] == [{"loss", "lr"}] * 3
    assert [numbers["loss"] for _, numbers in tracker.seen[2::3]] == history.history["loss"]
    assert all(numbers["lr"] == 0.1 for _, numbers in tracker.seen)


def test_what_a_callback_is_shown_cannot_be_changed() -> None:
    class Meddling(Callback):
        def on_epoch_end(self, state: State) -> None:
            with pytest.raises(TypeError):
                state.logs["loss"] = 0.0  # type: ignore[index]
            with pytest.raises(AttributeError):
                state.step = 7  # type: ignore[misc]

    assert program().load().fit((X, Y), callbacks=Meddling(), verbose=0).history["loss"][0] > 0
