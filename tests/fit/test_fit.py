"""The loop against the same loop written with PyTorch, and what it says and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from fitted import BATCH, Drawn, Stepping, program, samples
from tiny import assert_same, convnet, mlp, torch_step
from whet.callbacks import Callback, Control, State
from whet.errors import DataError, NotFinite

X, Y = samples(10)


def made(seed: int = 0, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer, whet.Program]:
    model = mlp(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"accumulate": True, **options}
    compiled = whet.compile(model, (torch.zeros(BATCH, 5),), optimizer=optimizer, **options)
    return model, optimizer, compiled


@pytest.fixture(scope="module")
def pair() -> tuple[nn.Module, torch.optim.Optimizer, whet.Program]:
    return made()


def theirs(
    pair: tuple[nn.Module, torch.optim.Optimizer, whet.Program], batches: list[Any], **words: Any
) -> tuple[nn.Module, list[float]]:
    """A copy of the model after PyTorch's steps on these batches, and their losses."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in batches:
        losses.append(torch_step(model, optimizer, torch.as_tensor(x), torch.as_tensor(y), **words))
    return model, losses


def in_order(epoch: int, seed: int = 0, count: int = 10) -> list[Any]:
    order = np.random.default_rng([seed, epoch]).permutation(count)
    rows = [order[at : at + BATCH] for at in range(0, count, BATCH)]
    return [(X[part], Y[part]) for part in rows]


def test_epochs_are_pytorchs_with_a_last_batch_of_two(pair: Any) -> None:
    """Every sample counts once an epoch; the loss of an epoch is the mean over its samples."""
    trainer = pair[2].load()
    history = trainer.fit((X, Y), epochs=3, seed=7, verbose=0)
    model, losses = theirs(pair, [b for epoch in range(3) for b in in_order(epoch, 7)])
    assert_same(trainer, model)
    means = [np.average(losses[i : i + 3], weights=[4, 4, 2]) for i in (0, 3, 6)]
    assert history.history["loss"] == pytest.approx(means, rel=1e-5)
    assert history.epoch == [0, 1, 2] and trainer.history is history


@pytest.mark.parametrize("form", ["list", "tensors", "loader", "generator"])
def test_all_forms_of_data_train_alike(form: str, pair: Any) -> None:
    arrays = [(X[at : at + BATCH], Y[at : at + BATCH]) for at in (0, 4, 8)]
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    data = {
        "list": arrays,
        "tensors": [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in arrays],
        "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), BATCH),
        "generator": (batch for batch in arrays),
    }[form]
    trainer, other = pair[2].load(), pair[2].load()
    history = trainer.fit(data, verbose=0)
    assert other.fit(tensors, shuffle=False, verbose=0) == history
    assert trainer.save() == other.save()
    assert_same(trainer, theirs(pair, arrays)[0])


def test_a_shuffling_loader_gives_the_order_of_pytorch() -> None:
    """Samples are read once each, in the order that the sampler draws."""
    dataset = Drawn(8)
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True)
    torch.manual_seed(5)
    order = [i for _ in range(2) for i in torch.utils.data.RandomSampler(dataset)]
    del order[8:]
    torch.manual_seed(5)
    program().load().fit(loader, verbose=0)
    assert dataset.read == order


def test_workers_of_a_loader_give_the_same_batches(pair: Any) -> None:
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    trainers = [pair[2].load(), pair[2].load()]
    for trainer, workers in zip(trainers, (0, 1), strict=True):
        trainer.fit(torch.utils.data.DataLoader(tensors, BATCH, num_workers=workers), verbose=0)
    assert trainers[0].save() == trainers[1].save()


class TwoIn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.fc(a * b)


def test_several_inputs_are_a_tuple() -> None:
    torch.manual_seed(0)
    model = TwoIn().eval()
    compiled = whet.compile(model, (torch.ones(2, 5), torch.ones(2, 5)), optimizer="sgd")
    trainer, other = compiled.load(), compiled.load()
    trainer.fit(((X, X[::-1]), Y), shuffle=False, lr=0.1, verbose=0)
    for at in range(0, 10, 2):
        other.step((X[at : at + 2], X[::-1][at : at + 2]), Y[at : at + 2], lr=0.1)
    assert trainer.save() == other.save()
    stream = (((X[at : at + 2], X[::-1][at : at + 2]), Y) for at in range(0, 10, 2))
    np.testing.assert_array_equal(trainer.predict(stream), trainer.predict((X, X[::-1])))


# Evaluation ----------------------------------------------------------------------------------


def test_evaluate_is_the_loss_and_accuracy_of_all_samples(pair: Any) -> None:
    trainer = pair[2].load()
    trainer.fit((X, Y), verbose=0)
    before = trainer.save()
    found = trainer.evaluate((X, Y))
    scores = torch.from_numpy(trainer.predict(X))
    loss = nn.functional.cross_entropy(scores, torch.from_numpy(Y)).item()
    right = float((scores.argmax(1).numpy() == Y).mean())
    assert found == pytest.approx({"loss": loss, "accuracy": right}, rel=1e-5)
    assert trainer.save() == before
    batches = [(X[at : at + 3], Y[at : at + 3]) for at in range(0, 10, 3)]
    assert trainer.evaluate(batches) == pytest.approx(found, rel=1e-5)
    np.testing.assert_allclose(trainer.predict(batches), scores, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(trainer.predict(x for x, _ in batches), scores, rtol=1e-5, atol=1e-7)


def test_labels_that_do_not_count_are_not_in_the_accuracy(pair: Any) -> None:
    trainer = pair[2].load()
    labels = np.where(np.arange(10) % 3 == 0, -100, Y)
    scores = trainer.predict(X)
    kept = labels >= 0
    right = float((scores.argmax(1)[kept] == labels[kept]).mean())
    assert trainer.evaluate((X, labels))["accuracy"] == pytest.approx(right)


def test_metrics_are_functions_of_labels_and_predictions(pair: Any) -> None:
    def largest(y: Any, prediction: Any) -> float:
        assert len(y) == len(prediction)
        return float(prediction.max(1).mean())

    trainer = pair[2].load()
    mean = float(trainer.predict(X).max(1).mean())
    found = trainer.evaluate((X, Y), metrics=[largest, "accuracy"])
    assert found["largest"] == pytest.approx(mean, rel=1e-6) and "accuracy" in found
    named = trainer.evaluate((X, Y), metrics={"top": largest})
    assert set(named) == {"loss", "top"} and named["top"] == pytest.approx(mean, rel=1e-6)
    with pytest.raises(DataError, match="metric 'f1' is unknown"):
        trainer.evaluate((X, Y), metrics="f1")


def test_validation_is_logged_by_keras_names_and_changes_nothing(pair: Any) -> None:
    trainer, other = pair[2].load(), pair[2].load()
    history = trainer.fit((X, Y), epochs=2, validation_data=(X[:6], Y[:6]), verbose=0,
                          train_metrics=True)  # fmt: skip
    other.fit((X, Y), epochs=2, verbose=0)
    assert trainer.save() == other.save()
    assert list(history.history) == ["loss", "accuracy", "val_loss", "val_accuracy", "lr"]
    last = {
        "loss": history.history["val_loss"][-1],
        "accuracy": history.history["val_accuracy"][-1],
    }
    assert trainer.evaluate((X[:6], Y[:6])) == last


def test_regression_has_a_loss_and_no_accuracy() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    compiled = whet.compile(model, (torch.zeros(4, 5),), loss=nn.MSELoss(), optimizer="sgd")
    y = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    trainer = compiled.load()
    loss = float(((trainer.predict(X) - y) ** 2).mean())
    assert trainer.evaluate((X, y)) == pytest.approx({"loss": loss}, rel=1e-5)
    with pytest.raises(DataError, match="accuracy of this program is unknown"):
        trainer.evaluate((X, y), metrics="accuracy")


# Increments, rates -----------------------------------------------------------------------------


def test_partial_fit_is_a_step_for_each_batch(pair: Any) -> None:
    trainer, other = pair[2].load(), pair[2].load()
    assert trainer.partial_fit(X[:4], Y[:4]) == other.step(X[:4], Y[:4])
    trainer.partial_fit(X[4:9], Y[4:9], lr=0.05)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for rows, lr in ((slice(0, 4), 0.1), (slice(4, 8), 0.05), (slice(8, 9), 0.05)):
        optimizer.param_groups[0]["lr"] = lr
        torch_step(model, optimizer, torch.from_numpy(X[rows]), torch.from_numpy(Y[rows]))
    assert_same(trainer, model)


def test_lr_find_restores_every_bit_and_finds_a_rate_that_learns() -> None:
    trainer = program("adam").load()
    x, y = samples(64)
    trainer.fit((x, y), verbose=0)
    before = trainer.save()
    found = trainer.lr_find((x, y))
    assert trainer.save() == before
    assert found.rates[0] == pytest.approx(1e-6) and len(found.rates) == len(found.losses)
    assert 1e-4 < found.lr < 1 and float(found) == found.lr
    losses = trainer.fit((x, y), epochs=5, lr=found.lr, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert found.svg().count("<polyline") == 1 and f"{found.lr:.3g}" in found.svg()
    with pytest.raises(DataError, match="not finite at a rate"):
        program("sgd").load().lr_find((x * np.nan, y))
    with pytest.raises(DataError, match=r"no rates from 1 to 0\.1"):
        trainer.lr_find((x, y), start=1.0, end=0.1)


@pytest.mark.parametrize(
    ("make", "interval"),
    [
        (lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5), None),
        (lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 6), "step"),
        (lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.3, total_steps=9), None),
        (lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2),
                torch.optim.lr_scheduler.ExponentialLR(o, 0.5)], [1]), "epoch"),
    ],
    ids=["StepLR", "CosineAnnealingLR", "OneCycleLR", "SequentialLR"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*epoch parameter in `scheduler.step:UserWarning")
def test_schedulers_give_the_rates_that_they_give_in_pytorch(
    make: Any, interval: str | None, pair: Any
) -> None:
    def fresh() -> tuple[Any, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        return optimizer, make(optimizer)

    optimizer, scheduler = fresh()
    by_step = interval == "step" or type(scheduler).__name__ == "OneCycleLR"
    rates, seen = [], Rates()
    for _ in range(3):
        for _ in range(3):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if by_step:
                scheduler.step()
        if not by_step:
            scheduler.step()
    pair[2].load().fit((X, Y), epochs=3, lr=fresh()[1], lr_interval=interval, verbose=0,
                       callbacks=seen)  # fmt: skip
    assert seen.rates == rates


class Rates(Callback):
    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_step_begin(self, state: State) -> None:
        self.rates.append(state.lr)


def test_a_table_of_rates_is_read_no_further_than_its_end(pair: Any, tmp_path: Path) -> None:
    table, seen = [0.3, 0.2, 0.1], Rates()
    history = pair[2].load().fit((X, Y), lr=lambda step: table[step], callbacks=seen, verbose=0,
                                 resume=tmp_path)  # fmt: skip
    assert seen.rates == table and history.history["lr"] == [0.1]


def test_a_rate_is_used_in_the_step_that_it_is_of(pair: Any) -> None:
    trainer, other = pair[2].load(), pair[2].load()
    trainer.fit((X[:8], Y[:8]), shuffle=False, lr=lambda step: 0.1 / (step + 1), verbose=0)
    other.step(X[:4], Y[:4], lr=0.1)
    other.step(X[4:8], Y[4:8], lr=0.05)
    assert trainer.save() == other.save()


# Control, errors -------------------------------------------------------------------------------


class Order(Callback):
    """Writes down every event."""

    def __init__(self) -> None:
        self.seen: list[str] = []


for _event in ("train_begin", "epoch_begin", "step_begin", "step_end", "log", "evaluate", "save",
               "epoch_end", "train_end"):  # fmt: skip
    setattr(Order, f"on_{_event}", lambda self, state, event=_event: self.seen.append(event))


def test_events_come_in_this_order(pair: Any, tmp_path: Path) -> None:
    order = Order()
    pair[2].load().fit((X[:8], Y[:8]), validation_data=(X, Y), callbacks=order, resume=tmp_path,
                       log_steps=2, verbose=0)  # fmt: skip
    assert (
        order.seen
        == (
            "train_begin save epoch_begin step_begin step_end step_begin step_end log "
            "evaluate log epoch_end save train_end save"
        ).split()
    )


class Stop(Callback):
    def on_step_end(self, state: State) -> Control | None:
        return Control(stop=True) if state.step == 2 else None


class Wrong(Callback):
    def on_step_end(self, state: State) -> Any:
        return True


def test_a_callback_can_stop_and_cannot_do_more(pair: Any) -> None:
    trainer, other = pair[2].load(), pair[2].load()
    history = trainer.fit((X, Y), epochs=3, shuffle=False, callbacks=[Stop()], verbose=0)
    other.step(X[:4], Y[:4])
    other.step(X[4:8], Y[4:8])
    assert trainer.save() == other.save() and history.epoch == [0]
    with pytest.raises(DataError, match="on_step_end returned True"):
        trainer.fit((X, Y), callbacks=[Wrong()], verbose=0)


@pytest.mark.parametrize("event", ["train_begin", "epoch_begin", "step_begin", "log"])
def test_a_stop_at_any_event_ends_it(event: str, pair: Any) -> None:
    kind = type("Stopping", (Callback,), {f"on_{event}": lambda self, state: Control(stop=True)})
    history = pair[2].load().fit((X, Y), epochs=3, callbacks=kind(), verbose=0, log_steps=2)
    assert len(history.epoch) == (event in ("step_begin", "log"))


class Own(torch.utils.data.IterableDataset[Any]):
    """Batches of its own, in an order that depends on the epoch it is told."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        at = 4 * (self.epoch % 2)
        yield X[at : at + 4], Y[at : at + 4]


def test_iterable_datasets_and_those_that_are_told_the_epoch(pair: Any) -> None:
    trainer, loaded, other = (pair[2].load() for _ in range(3))
    trainer.fit(Own(), epochs=2, verbose=0)
    for at in (0, 4):
        other.step(X[at : at + 4], Y[at : at + 4])
    assert trainer.save() == other.save()
    dataset = Own()
    dataset.set_epoch(0)
    loaded.fit(torch.utils.data.DataLoader(dataset, batch_size=None), verbose=0)
    other = pair[2].load()
    other.step(X[:4], Y[:4])
    assert loaded.save() == other.save()


class Empty:
    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        ((X, Y[:9]), {}, r"differ in number: \[9, 10\]"),
        ((X, Y, Y), {}, "the data are not two arrays"),
        (X, {}, "the data have no labels"),
        ([X[:4]], {}, "the data are not two arrays"),
        ([[X[:4], Y[:4], Y[:4]]], {}, "not a pair"),
        (Empty(), {}, "nothing to train on"),
        ([(X[:3], Y[:2])], {}, r"differ in number: \[2, 3\]"),
        ((X[:0], Y[:0]), {}, "the data are empty"),
        ((X[:3], Y[:3]), {"partial": "drop"}, "nothing to train on"),
        ([(X[:8], Y[:8])], {}, "a batch has 8 samples, the program was compiled for 4"),
        (iter([(X[:4], Y[:4])]), {"epochs": 2}, "can be iterated once only"),
        ((X, Y), {"epochs": 0}, "epochs=0 is not a whole number"),
        ((X, Y), {"seed": -1}, "seed=-1"),
        ((X, Y), {"partial": "pad"}, "partial='pad' is unknown"),
        ((X, Y), {"lr": "fast"}, "lr='fast' is no learning rate"),
        ((X, Y), {"lr": lambda step: -1.0}, "the learning rate of step 0 is -1"),
        ((X, Y), {"lr": 0.1, "lr_interval": "step"}, "for schedulers"),
        ((X, Y), {"callbacks": [3]}, "3 is no callback"),
        ((X, Y), {"callbacks": [Callback]}, "is no callback"),
        ((X, Y), {"verbose": 5}, "verbose=5 is unknown"),
        ((X, Y), {"metrics": "f1"}, "metric 'f1' is unknown"),
        ((X, Y), {"validation_data": X}, "the data have no labels"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused_and_nothing_is_trained(
    data: Any, words: dict[str, Any], message: str, pair: Any
) -> None:
    trainer = pair[2].load()
    before = trainer.save()
    with pytest.raises(DataError, match=message):
        trainer.fit(data, **{"verbose": 0, **words})
    if "epochs" not in words:  # of a second epoch, the first is trained
        assert trainer.save() == before


def test_a_loss_that_is_not_finite_ends_it_after_whole_steps(pair: Any) -> None:
    x = X.copy()
    x[9] = np.nan  # in the last batch of two, which takes a step of its own
    trainer, other = pair[2].load(), pair[2].load()
    with pytest.raises(NotFinite):
        trainer.fit((x, Y), shuffle=False, epochs=2, verbose=0)
    other.fit((X[:8], Y[:8]), shuffle=False, verbose=0)
    assert trainer.save() == other.save()
    assert trainer.history is not None and trainer.history.epoch == []


# What is shown ---------------------------------------------------------------------------------


def test_a_line_for_each_epoch_or_nothing(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pair[2].load().fit((X, Y), epochs=2, validation_data=(X, Y))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert "val_accuracy" in lines[1] and lines[1].endswith(" s")
    pair[2].load().fit((X, Y), verbose=0)
    assert capsys.readouterr().out == ""
    pair[2].load().fit(Stepping(8), epochs=2, verbose=1)
    assert "epoch 2/2  loss" in capsys.readouterr().out


def test_a_history_is_a_dict_of_lists_and_draws_itself(pair: Any, tmp_path: Path) -> None:
    history = pair[2].load().fit((X, Y), epochs=3, validation_data=(X, Y), verbose=0)
    assert set(map(len, history.history.values())) == {3}
    picture = history.save(tmp_path / "run.svg").read_text()
    assert picture.count("<polyline") == 3, "loss, val_loss, val_accuracy"
    assert "val_accuracy" in picture and "epoch" in picture
    assert json.loads(history.save(tmp_path / "run.json").read_text()) == history.history
    with pytest.raises(whet.errors.BuildError, match=r"neither .json nor .svg"):
        history.save(tmp_path / "run.txt")


def test_a_board_is_fitted_like_a_trainer_of_this_machine() -> None:
    """The emulated microcontroller has the host's bits, also with a last batch of one sample."""
    torch.manual_seed(0)
    model, shown = convnet(norm=False).eval(), torch.randn(2, 3, 6, 4)
    words: dict[str, Any] = {"update": "last", "dtype": "int8", "calibrate": [shown]}
    x, y = np.random.default_rng(0).normal(size=(3, 3, 6, 4)).astype(np.float32), np.arange(3)
    found = []
    for target in ("host", "cortex-m7"):
        trainer = whet.compile(model, (shown,), target=target, **words).load()
        history = trainer.fit((x, y), epochs=2, lr=0.1, validation_data=(x, y), verbose=0)
        found.append((history.history, trainer.save()))
        trainer.close()
    assert found[0] == found[1]
