"""Distiller: what it takes of both models, how shapes are bridged, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from distilled import X, Y, student, teacher
from whet.errors import FrontendError, NotFinite
from whet.labs.compress import distill as kd
from whet.labs.compress.distill import losses


def test_terms_are_added_with_their_weights() -> None:
    s, t = student(), teacher()
    terms = [kd.Logits(weight=0.5, temperature=2.0), kd.Attention("seen", weight=3.0)]
    distiller = kd.Distiller(s, t, terms, X, hard=0.25)
    with torch.no_grad():
        ours, theirs = s[:4](X), t[:4](X)
        right = 0.25 * F.cross_entropy(s(X), Y)
        right += 0.5 * losses.kl_divergence(s(X), t(X), 2.0)
        maps = losses.attention_map(ours), losses.attention_map(theirs)
        right += 3.0 * losses.attention(*maps)
    torch.testing.assert_close(distiller(X, Y), right)
    parts = distiller.parts(X, distiller.labels(X, Y))
    assert list(parts) == ["hard", "logits", "attention seen"]
    assert sum(parts.values()) == pytest.approx(right.item(), rel=1e-6)


def test_the_teacher_is_frozen_in_eval_mode_and_not_a_parameter() -> None:
    t = teacher()
    t.act = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU())
    before = copy.deepcopy(t.state_dict())
    distiller = kd.Distiller(student(), t, [kd.Logits(), kd.Features("seen")], X).train()
    assert not distiller.teacher.training and t.training, "the caller's model is left as it is"
    distiller(X, Y).backward()
    assert all(p.grad is None for p in (*t.parameters(), *distiller.teacher.parameters()))
    assert all(torch.equal(before[n], v) for n, v in distiller.teacher.state_dict().items())
    sizes = sum(p.numel() for p in student().parameters()) + 4 * 6 + 6
    assert sum(p.numel() for p in distiller.parameters()) == sizes


def test_hooks_are_gone_after_every_call() -> None:
    s = student()
    distiller = kd.Distiller(s, teacher(), kd.Features("seen"), X)
    distiller(X, Y)
    with pytest.raises(RuntimeError):
        distiller(X[:, :, :, :1].expand(-1, 3, -1, -1), Y)
    for model in (s, distiller.teacher):
        assert not any(module._forward_hooks for module in model.modules())


def test_the_student_keeps_its_mode() -> None:
    s = student().train()
    s.seen.eval()
    kd.Distiller(s, teacher(), kd.Features("seen"), X)
    assert s.training and s.first.training and not s.seen.training


@pytest.mark.parametrize(
    ("term", "shape"),
    [
        (kd.Features("seen"), (4, 6, 4, 4)),
        (kd.Features("flat"), (4, 6)),
        (kd.Attention("seen"), (4, 16)),  # no channels: that is all the loss needs
        (kd.Selectivity("seen"), (4, 6, 16)),
    ],
    ids=str,
)
def test_targets_have_a_row_for_every_sample(term: Any, shape: tuple[int, ...]) -> None:
    (given,) = kd.Distiller(student(), teacher(), term, X).targets(X)
    assert tuple(given.shape) == shape


def test_terms_on_one_layer_share_a_target() -> None:
    terms = [kd.Logits(), kd.Distances(), kd.Angles(), kd.Attention("seen"), kd.Selectivity("seen")]
    given = kd.Distiller(student(), teacher(), terms, X).targets(X)
    assert [tuple(t.shape) for t in given] == [(4, 3), (4, 16), (4, 6, 16)]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_larger_image_is_pooled(swapped: bool) -> None:
    small, large = student(), teacher(stride=1)
    models = (large, small) if swapped else (small, large)
    distiller = kd.Distiller(*models, kd.Features("seen"), X)
    ours, theirs = (model[:4](X) for model in models)
    if swapped:
        ours = F.avg_pool2d(ours, 2)
    else:
        theirs = F.avg_pool2d(theirs, 2)
    (adapter,) = distiller.adapters
    right = losses.squared_error(adapter.linear(ours), theirs)
    torch.testing.assert_close(distiller.loss(X, distiller.labels(X, Y)) - F.cross_entropy(
        models[0](X), Y), right, rtol=1e-4, atol=1e-5)  # fmt: skip


def test_all_weights_of_the_same_name_and_shape() -> None:
    s, t = student(), student(seed=5)
    distiller = kd.Distiller(s, t, kd.Weights(weight=2.0), X, hard=0.0)
    theirs = dict(t.named_parameters())
    right = [F.mse_loss(p, theirs[n]) for n, p in s.named_parameters()]
    torch.testing.assert_close(distiller(X), 2.0 * sum(right) / len(right))
    assert distiller.targets(X) == ()


def test_adapters_are_seeded() -> None:
    models = student(), teacher()

    def weight(seed: int) -> torch.Tensor:
        (adapter,) = kd.Distiller(*models, kd.Features("seen"), X, seed=seed).adapters
        return adapter.linear.weight

    before = torch.random.get_rng_state()
    assert torch.equal(weight(0), weight(0)) and not torch.equal(weight(0), weight(1))
    assert torch.equal(torch.random.get_rng_state(), before)


def spoiled() -> nn.Module:
    t = teacher()
    with torch.no_grad():
        t.head.weight[0, 0] = float("nan")
    return t


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.body = nn.ReLU(), student()

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(self.body(self.act(x)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kd.Distiller(student(), teacher(classes=5), kd.Logits(), X),
         "predicts \\(3,\\) numbers a sample, the teacher \\(5,\\)"),
        (lambda: kd.Distiller(student(), teacher(), kd.Features("sen"), X), "no layer 'sen'"),
        (lambda: kd.Distiller(student(), teacher(), kd.Features("seen", "see"), X),
         "no layer 'see'"),
        (lambda: kd.Distiller(student(), teacher(), kd.Weights("x"), X), "no weight 'x'"),
        (lambda: kd.Distiller(student(), teacher(), kd.Weights("head.weight", "first.weight"), X),
         "cannot be brought"),
        (lambda: kd.Distiller(student(), teacher(), kd.Features("seen", "flat"), X),
         r"\(4, 4, 4, 4\) cannot be brought to the teacher's \(4, 6\)"),
        (lambda: kd.Distiller(student(), teacher(), kd.Attention("flat"), X), "cannot be brought"),
        (lambda: kd.Distiller(Twice(), teacher(), kd.Features("act", "seen"), X), "runs 2 times"),
        (lambda: kd.Distiller(student(), teacher(), kd.Distances(), X[:1]), "the example has 1"),
        (lambda: kd.Distiller(student(), teacher(), [], X), "nothing is taken from the teacher"),
        (lambda: kd.Distiller(student(), teacher(), kd.Logits(), X, hard=-1.0), "a weight of -1.0"),
        (lambda: kd.Distiller(student(), teacher(), kd.Logits(), X)(X), "needs labels"),
        (lambda: kd.Distiller(student(), nn.Sequential(nn.Flatten()), kd.Weights(), X),
         "no weight of"),
        (lambda: kd.Logits(temperature=0.0), "a temperature of 0.0"),
        (lambda: kd.Features("seen", weight=float("nan")), "a weight of nan"),
        (lambda: kd.Selectivity("seen", kernel="cubic"), "'cubic' is not a kernel"),
        (lambda: kd.Logits(divergence="js"), "'js' is not a divergence"),
    ],
)  # fmt: skip
def test_what_cannot_be_distilled_is_refused(make: Any, words: str) -> None:
    with pytest.raises(FrontendError, match=words):
        make()


def test_an_unknown_layer_is_answered_with_close_names() -> None:
    with pytest.raises(FrontendError) as caught:
        kd.Distiller(student(), teacher(), kd.Features("secnd"), X)
    assert "second" in str(caught.value)


def test_a_teacher_that_says_nan() -> None:
    with pytest.raises(NotFinite, match="the teacher's prediction holds numbers that are not"):
        kd.Distiller(student(), spoiled(), kd.Logits(), X)
    distiller = kd.Distiller(student(), teacher(), kd.Logits(), X)
    with pytest.raises(NotFinite, match="prediction"):
        distiller(X / 0.0, Y)


def test_a_teacher_of_other_classes_may_show_its_layers() -> None:
    distiller = kd.Distiller(student(), teacher(classes=5), kd.Features("seen"), X)
    assert torch.isfinite(distiller(X, Y))
