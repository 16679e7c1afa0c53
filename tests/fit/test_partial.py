"""A last batch of fewer samples takes the step that PyTorch takes on just these samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from fitted import samples
from tiny import assert_same, torch_step
from whet.fit.data import Batch
from whet.fit.partial import Filling

X, Y = samples(8)
MSE = nn.functional.mse_loss


def compiled(loss: Any = None, batch: int = 6, **options: Any) -> tuple[nn.Module, whet.Program]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    words = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), **options}
    return model, whet.compile(model, (torch.zeros(batch, 5),), loss=loss, **words)


def batch_of(count: int, y: np.ndarray = Y) -> Batch:
    return Batch.of((X[:count], y[:count]))


@pytest.mark.parametrize("count", range(1, 6))
def test_ignored_labels_make_any_batch_exact(count: int) -> None:
    weight = torch.tensor([1.0, 2.0, 0.5])
    loss = nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    model, program = compiled(loss)
    trainer = program.load()
    found = trainer.partial_fit(X[:count], Y[:count])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.from_numpy(X[:count]), torch.from_numpy(Y[:count])
    assert found == pytest.approx(torch_step(model, optimizer, x, y, loss), rel=1e-5)
    assert_same(trainer, model)


@pytest.mark.parametrize("count", range(1, 6))
def test_repetition_makes_a_mean_exact(count: int) -> None:
    """3 of 6 samples are taken twice; 4 of 6 three times, in two batches whose gradients add."""
    model, program = compiled(nn.MSELoss(), accumulate=True, clip_norm=0.05)
    y = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    trainer = program.load()
    found = trainer.partial_fit(X[:count], y[:count])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pair = torch.from_numpy(X[:count]), torch.from_numpy(y[:count])
    assert found == pytest.approx(torch_step(model, optimizer, *pair, MSE, 0.05), rel=1e-5)
    assert_same(trainer, model)
    whole = Filling.for_training(trainer, "auto").whole(batch_of(count, y), lambda: batch_of(6, y))
    rows = np.concatenate([one.inputs[0] for one in whole])
    assert len(whole) == {1: 1, 2: 1, 3: 1, 4: 2, 5: 5}[count]
    _, times = np.unique(rows, axis=0, return_counts=True)
    assert set(times) == {6 * len(whole) // count}


def rows_of(program: whet.Program, count: int, way: str = "auto") -> list[list[int]]:
    """Which of the samples the whole batches consist of."""
    filling = Filling.for_training(program.load(), way)
    whole = filling.whole(Batch.of((X[6 : 6 + count], Y[6 : 6 + count])), lambda: batch_of(6))
    places = {x.tobytes(): i for i, x in enumerate(X)}
    return [[places[x.tobytes()] for x in one.inputs[0]] for one in whole]


def test_what_cannot_be_exact_is_filled_with_the_first_samples() -> None:
    plain = compiled(nn.MSELoss(), labels=torch.zeros(6, 3))[1]
    assert rows_of(plain, 2) == [[6, 7, 6, 7, 6, 7]], "2 divides 6"
    assert rows_of(plain, 1, "wrap") == [[6, 0, 1, 2, 3, 4]]
    assert rows_of(plain, 2, "drop") == []
    mixing = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).train()
    program = whet.compile(mixing, (torch.randn(6, 5),), accumulate=True, optimizer="sgd")
    assert rows_of(program, 2) == [[6, 7, 0, 1, 2, 3]], "statistics are of the batch"
    four = compiled(nn.MSELoss(), batch=4)[1]
    filling = Filling.for_training(four.load(), "auto")
    three = filling.whole(batch_of(3), lambda: batch_of(4))
    assert [len(one) for one in three] == [4], "3 does not divide 4, and nothing accumulates"
    np.testing.assert_array_equal(three[0].inputs[0], X[[0, 1, 2, 0]])


def test_a_loss_of_more_than_labels_is_not_padded() -> None:
    """A second term would see the samples that fill the batch up."""

    def loss(prediction: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(prediction, y) + 0.1 * (prediction**2).mean()

    model, program = compiled(loss, labels=torch.zeros(6, dtype=torch.int64), accumulate=True)
    trainer = program.load()
    assert Filling.for_training(trainer, "auto").ignored is None
    trainer.partial_fit(X[:4], Y[:4])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch_step(model, optimizer, torch.from_numpy(X[:4]), torch.from_numpy(Y[:4]), loss)
    assert_same(trainer, model)


def test_gradients_are_as_before_if_one_of_several_batches_fails() -> None:
    _, program = compiled(nn.MSELoss(), accumulate=True)
    y = np.zeros((8, 3), np.float32)
    x = X.copy()
    x[4] = np.nan
    trainer = program.load()
    before = trainer.save()
    with pytest.raises(whet.errors.NotFinite):
        trainer.partial_fit(x[:5], y[:5])
    assert trainer.save() == before
