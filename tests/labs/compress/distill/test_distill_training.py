"""The ready loop in PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from distilled import X, Y, blobs, student, teacher
from whet.errors import DataError, NotFinite
from whet.labs.compress.distill import Distances, Features, Logits, Weights, distill, with_teacher


def accuracy(model: nn.Module) -> float:
    x, y = blobs(300, seed=9)
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    model, (x, y) = teacher(), blobs(300)
    adam = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        adam.zero_grad()
        F.cross_entropy(model(x), y).backward()
        adam.step()
    assert accuracy(model) > 0.75
    return model


def test_a_student_learns_from_its_teacher_alone(trained: nn.Module) -> None:
    """No label is right here, so that whatever it knows it has from the teacher."""
    s, (x, y) = student(), blobs(300)
    assert accuracy(s) < 0.5
    means = distill(s, trained, (x, 0 * y), hard=0.0, epochs=60, lr=0.02)
    assert means[-1] < 0.5 * means[0] and accuracy(s) > 0.7


def test_a_seed_repeats_a_run_and_a_loader_gives_the_same_batches(trained: nn.Module) -> None:
    def weights(data: object, **options: object) -> torch.Tensor:
        s = student()
        distill(s, trained, data, losses=[Logits(), Features("seen")], epochs=2, **options)
        return torch.cat([p.detach().flatten() for p in s.parameters()])

    x, y = blobs(64)
    one = weights((x, y), batch=32, seed=3)
    assert torch.equal(one, weights((x, y), batch=32, seed=3))
    assert not torch.equal(one, weights((x, y), batch=32, seed=4))
    whole = weights((x, y), batch=64)
    torch.testing.assert_close(whole, weights([(x, y)]), rtol=1e-4, atol=1e-6)


def test_the_teacher_and_modes_are_left_alone(trained: nn.Module) -> None:
    s, before = student().eval(), copy.deepcopy(trained.state_dict())
    distill(s, trained, blobs(64), epochs=1)
    assert not any(module.training for module in s.modules())
    assert all(torch.equal(before[n], v) for n, v in trained.state_dict().items())


def test_a_train_function_for_whatever_retrains_a_model(trained: nn.Module) -> None:
    """Pruned weights stay pruned: the loop trains what the model calls its parameters."""
    s = student()
    prune.l1_unstructured(s.second, "weight", amount=0.75)
    zeros, first = s.second.weight == 0, s.second.weight_orig.clone()
    train = with_teacher(trained, blobs(64), epochs=2, lr=0.01)
    assert train(s) is None
    assert bool((s.second.weight[zeros] == 0).all()) and int(zeros.sum()) == 108
    assert not torch.equal(first[~zeros], s.second.weight_orig[~zeros])


def test_batches_too_small_for_a_term_are_left_out(trained: nn.Module) -> None:
    batches = [(X, Y), (X[:1], Y[:1])]
    means = distill(student(), trained, batches, losses=Distances("seen"))
    assert means[0] == pytest.approx(distill(student(), trained, batches[:1],
                                             losses=Distances("seen"))[0])  # fmt: skip


def test_weights_alone_need_no_run_of_the_teacher() -> None:
    s, t = student(), student(seed=1)
    distill(s, t, (X, Y), losses=Weights(weight=100.0), hard=0.0, epochs=300, batch=4, lr=0.05)
    for ours, theirs in zip(s.parameters(), t.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.02)


def test_bad_data() -> None:
    t = teacher()
    with pytest.raises(DataError, match="inputs and labels differ in number"):
        distill(student(), t, (X, Y[:2]))
    with pytest.raises(DataError, match="batches of 64 of 4 samples"):
        distill(student(), t, (X, Y))
    with pytest.raises(DataError, match="there is not one batch"):
        distill(student(), t, [])
    with pytest.raises(DataError, match="no batch in epoch 1"):
        distill(student(), t, iter([(X, Y)]), epochs=2)
    with pytest.raises(DataError, match="epochs=0"):
        distill(student(), t, (X, Y), epochs=0)
    with pytest.raises(NotFinite, match="the loss is nan in epoch"):
        distill(student(), t, (X, Y), batch=4, lr=1e30, epochs=9)
