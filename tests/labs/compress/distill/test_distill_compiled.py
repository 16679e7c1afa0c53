"""The compiled step is PyTorch's, for every term, and a microcontroller's is the host's."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

import whet
from distilled import X, Y, blobs, student, teacher
from whet.labs.compress import distill as kd

TERMS = [
    kd.Logits(), kd.Logits(divergence="cross-entropy", temperature=2.0), kd.Features("seen"),
    kd.Attention("seen"), kd.Selectivity("seen"), kd.Selectivity("seen", kernel="linear"),
    kd.Selectivity("seen", kernel="gaussian"), kd.Distances("flat"), kd.Angles(),
    kd.Weights("second.weight"),
]  # fmt: skip


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@pytest.mark.parametrize("term", TERMS, ids=lambda t: f"{t.name} {getattr(t, 'kernel', '')}")
def test_gradients_and_ten_steps_are_pytorchs(term: Any) -> None:
    distiller = kd.Distiller(student().eval(), teacher(), term, X)
    program = distiller.program(X, Y, optimizer=sgd)
    report = program.check()
    adapters = len(list(distiller.adapters.parameters()))
    assert len(report.gradients) == 6 + adapters
    assert max(report.gradients.values()) < 1e-4
    target = distiller.labels(X, Y)
    assert program.load().step(X, target) == pytest.approx(distiller(X, Y).item(), rel=1e-5)


def test_the_program_trains_the_student_the_loop_would() -> None:
    """Ten steps in C and in PyTorch, adapters with them, and back by the student's own names."""
    terms = [kd.Logits(weight=0.5), kd.Features("seen"), kd.Attention("seen", weight=2.0)]
    s = student()
    distiller = kd.Distiller(s, teacher(), terms, X)
    trainer = distiller.program(X, Y, optimizer=sgd).load()
    optimizer, (x, y) = sgd(distiller.parameters()), blobs(40)
    for i in range(0, 40, 4):
        target = distiller.labels(x[i : i + 4], y[i : i + 4])
        loss = distiller.loss(x[i : i + 4], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ours = trainer.step(x[i : i + 4], target)
        assert ours == pytest.approx(loss.item(), rel=1e-4)
    again = student()
    left = again.load_state_dict(trainer.state_dict(), strict=False)
    assert left.missing_keys == []
    assert left.unexpected_keys == ["distill_0_linear_weight", "distill_0_linear_bias"]
    for name, parameter in s.named_parameters():
        torch.testing.assert_close(again.get_parameter(name), parameter, rtol=1e-4, atol=1e-6)
    adapter = trainer.state_dict()["distill_0_linear_weight"]
    torch.testing.assert_close(adapter, distiller.adapters[0].linear.weight, rtol=1e-4, atol=1e-6)


def test_prediction_needs_the_input_alone() -> None:
    s = student().eval()
    terms = [kd.Logits(), kd.Features("seen")]
    program = kd.Distiller(s, teacher(), terms, X).program(X, Y)
    header = program.files["model.h"].decode()
    assert "net_predict(net_t *net, const float *input, float *output)" in header
    assert "const int32_t *label,\n" in header and "const float *label_2," in header
    np.testing.assert_allclose(program.load().predict(X), s(X).detach(), rtol=1e-5, atol=1e-6)


def test_no_labels_are_needed_without_a_hard_loss() -> None:
    distiller = kd.Distiller(student(), teacher(), kd.Logits(), X, hard=0.0)
    program = distiller.program(X)
    program.check(steps=2)
    target = distiller.labels(X)
    assert program.load().step(X, target) == pytest.approx(distiller(X).item(), rel=1e-4)


def test_batch_norm_trains_as_in_pytorch() -> None:
    s = student().train()
    s.act = torch.nn.Sequential(torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    program = kd.Distiller(s, teacher(), [kd.Logits(), kd.Features("seen")], X).program(X, Y)
    assert {"act.0.weight", "act.0.bias"} <= program.check().gradients.keys()
    trainer = program.load()
    trainer.step(X, kd.Distiller(s, teacher(), [kd.Logits(), kd.Features("seen")], X).labels(X, Y))
    s(X)  # running statistics, as one step in PyTorch leaves them
    after = torch.as_tensor(trainer.state_dict()["act.0.running_mean"])
    torch.testing.assert_close(after, s.act[0].running_mean)


def test_a_scheme_trains_a_part_of_the_student() -> None:
    distiller = kd.Distiller(student().eval(), teacher(), [kd.Logits(), kd.Features("seen")], X)
    scheme = whet.Scheme([whet.Rule("head.*"), whet.Rule("second.*"), whet.Rule("distill_*")])
    program = distiller.program(X, Y, update=scheme)
    assert len(program.check().gradients) == 6
    last = distiller.program(X, Y, update="last")
    assert set(last.check(steps=2).gradients) <= {"head.weight", "head.bias"} | {
        n for n in last.chosen if n.startswith("distill")
    }


def test_a_pruned_student_stays_pruned() -> None:
    """Its live weights are all that a program stores, and learn what PyTorch's would."""
    s = student().eval()
    prune.l1_unstructured(s.second, "weight", amount=0.75)
    zeros = s.second.weight.detach() == 0
    distiller = kd.Distiller(s, teacher(), [kd.Logits(), kd.Features("seen")], X)
    distiller(X, Y)  # leaves a product with a gradient in the layer, which PyTorch does not copy
    program = distiller.program(X, Y, optimizer=sgd)
    program.check()
    trainer = program.load()
    trainer.step(X, distiller.labels(X, Y))
    before = s.second.weight_orig.detach().clone()
    s.load_state_dict(trainer.state_dict(), strict=False)
    assert program.memory["trained"] < 4 * sum(p.numel() for p in distiller.parameters())
    assert not torch.equal(before[~zeros], s.second.weight_orig[~zeros])
    with torch.no_grad():
        s(X)
    assert bool((s.second.weight[zeros] == 0).all()) and int(zeros.sum()) == 108


def test_an_int8_student_learns_from_logits() -> None:
    x, y = blobs(64)
    distiller = kd.Distiller(student().eval(), teacher(), kd.Logits(), x[:4])
    program = distiller.program(x[:4], y[:4], dtype="int8", calibrate=[x])
    program.check(steps=3)
    trainer, target = program.load(), distiller.labels(x[:4], y[:4])
    first, *_, last = [trainer.step(x[:4], target, lr=0.2) for _ in range(60)]
    assert last < 0.8 * first


def test_a_microcontroller_distils_to_the_bit() -> None:
    assert shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"), "make setup-mcu"
    terms = [kd.Logits(), kd.Features("seen"), kd.Attention("seen"), kd.Selectivity("seen")]
    distiller = kd.Distiller(student().eval(), teacher(), terms, X)
    chip = distiller.program(X, Y, optimizer=sgd, target="cortex-m7")
    here = distiller.program(X, Y, optimizer=sgd, portable=True).load()
    target = distiller.labels(X, Y)
    with chip.load() as board:
        assert [board.step(X, target) for _ in range(5)] == [here.step(X, target) for _ in range(5)]
        assert board.predict(X).tobytes() == here.predict(X).tobytes()
    assert board.watched.outside == 0
