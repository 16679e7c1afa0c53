"""Membership scores: against formulas, PyTorch, and models that know their members by heart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from tiny import mlp
from whet.errors import DataError
from whet.labs.privacy import membership
from whet.labs.privacy.roc import Roc


def samples(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=generator)
    return x, torch.randint(3, (count,), generator=generator)


def test_losses_and_confidences_are_what_pytorch_computes() -> None:
    logits, labels = torch.randn(50, 7) * 20, torch.randint(7, (50,))
    expected = nn.functional.cross_entropy(logits.double(), labels, reduction="none")
    np.testing.assert_allclose(membership.losses(logits, labels), expected, rtol=1e-9, atol=1e-12)
    logits /= 10
    p = torch.softmax(logits.double(), 1)[torch.arange(50), labels]
    np.testing.assert_allclose(
        membership.confidences(logits, labels), torch.log(p / (1 - p)), rtol=1e-7
    )
    assert np.isfinite(membership.confidences([[1e4, 0.0]], np.array([0]))).all()


@pytest.mark.parametrize("update", ["full", "last"])
def test_gradients_of_samples_are_autograds_and_leave_no_trace(update: str) -> None:
    model = mlp()
    x, y = samples(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    program = whet.compile(model, (x[:1],), optimizer=optimizer, update=update, accumulate=True)
    trainer = program.load()
    trainer.step(x[:1], y[:1])
    trainer.gradients(x[1:2], y[1:2])
    model.load_state_dict(trainer.state_dict(), strict=False)
    before = trainer.save()
    rows = membership.sample_gradients(trainer, x, y)
    assert trainer.save() == before
    names = list(trainer.collected())
    assert len(names) == {"full": 4, "last": 2}[update]
    for i in range(len(x)):
        model.zero_grad()
        nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        parameters = dict(model.named_parameters())
        expected = np.concatenate([parameters[n].grad.numpy().ravel() for n in names])
        np.testing.assert_allclose(rows[i], expected, rtol=1e-4, atol=1e-6)


def test_gradients_of_samples_need_a_batch_of_one() -> None:
    x, y = samples(4)
    trainer = whet.compile(mlp(), (x,), accumulate=True).load()
    with pytest.raises(DataError, match="batch 1"):
        membership.sample_gradients(trainer, x, y)


@pytest.fixture(scope="module")
def learned() -> tuple[Any, tuple[Any, Any], tuple[Any, Any]]:
    """A program that has learned random labels by heart, members, and others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3))
    members, others = samples(40, seed=1), samples(200, seed=2)
    trainer = whet.compile(model, (members[0][:1],), accumulate=True).load()
    rng = np.random.default_rng(0)
    for _ in range(150):
        for i in rng.permutation(40):
            trainer.step(members[0][i : i + 1], members[1][i : i + 1], lr=0.02)
    return trainer, members, others


def test_what_was_learned_by_heart_is_known_by_its_loss_and_by_its_gradient(learned: Any) -> None:
    trainer, members, others = learned
    by_loss = Roc.of(
        membership.loss_scores(trainer, *members), membership.loss_scores(trainer, *others)
    )
    inside, outside = (membership.sample_gradients(trainer, *part) for part in (members, others))
    by_norm = Roc.of(membership.norm_scores(inside), membership.norm_scores(outside))
    assert by_loss.auc > 0.75 and by_norm.auc > 0.75


def test_an_untrained_model_knows_nobody() -> None:
    x, y = samples(600)
    trainer = whet.compile(mlp(), (x[:1],)).load()
    scores = membership.loss_scores(trainer, x, y)
    roc = Roc.of(scores[:300], scores[300:])
    assert abs(roc.auc - 0.5) < 3 * roc.auc_error


def test_a_gradient_of_the_batch_points_along_that_of_its_samples() -> None:
    """The observed update is that of 4 samples; 200 others were not in it."""
    x, y = samples(204, seed=3)
    trainer = whet.compile(mlp(), (x[:1],), accumulate=True).load()
    rows = membership.sample_gradients(trainer, x, y)
    scores = membership.alignment_scores(rows, rows[:4].mean(0))
    assert Roc.of(scores[:4], scores[4:]).auc > 0.75
    assert membership.alignment_scores(rows[:1], 3 * rows[0]) == pytest.approx(1)
    assert membership.alignment_scores(rows[:1], -rows[0]) == pytest.approx(-1)


def test_calibration_finds_members_among_samples_of_unequal_difficulty() -> None:
    """Difficulty spreads the confidences by 3, membership moves them by 1."""
    rng = np.random.default_rng(0)
    difficulty = rng.normal(0, 3, 4000)
    member = np.arange(4000) < 2000
    target = difficulty + member + rng.normal(0, 0.4, 4000)
    shadows = difficulty + rng.normal(0, 0.4, (4, 4000))
    plain = Roc.of(target[member], target[~member])
    scores = membership.lira(target, list(shadows))
    calibrated = Roc.of(scores[member], scores[~member])
    assert plain.auc < 0.62
    # the difference has deviation 0.4 sqrt(1 + 1/4), so the AUC is Phi(1 / (0.447 sqrt 2)) = 0.943
    assert calibrated.auc == pytest.approx(0.943, abs=0.01)
    assert calibrated.tpr_at(0.01).low > 5 * plain.tpr_at(0.01).high
    with pytest.raises(DataError, match="two shadow models"):
        membership.lira(target, [shadows[0]])
