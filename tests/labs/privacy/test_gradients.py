"""What an attacker sees is what PyTorch computes, sliced and masked alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.leaky import in_torch, picture, seen, sigmoid_net
from torch import nn

import whet
from whet.errors import DataError
from whet.labs.privacy import differentiable, observe
from whet.labs.privacy.gradients import Matching

Y = torch.tensor([2])
SLICED = whet.Scheme([whet.Rule("5.*"), whet.Rule("2.weight", channels=0.5)])


@pytest.mark.parametrize(
    ("update", "count"),
    [("full", 60 + 330 + 388), ("last", 388), ("bias+last", 388 + 12), (SLICED, 388 + 162)],
)
def test_gradients_of_a_float_program_are_those_of_pytorch(update: Any, count: int) -> None:
    x = picture()
    observation = seen(sigmoid_net(), x, Y, update=update)
    matching = Matching(observation)
    assert observation.coordinates == len(matching.target) == count == sum(matching.sections())
    worst = (matching.gradients(x, Y) - matching.target).detach().abs().max()
    assert float(worst) < 1e-5


def test_a_slice_is_observed_along_its_axis() -> None:
    observation = seen(sigmoid_net(), picture(), Y, update=SLICED)
    axis, indices = observation.parts["2.weight"] or (None, ())
    assert axis == 1 and len(indices) == 3
    assert observation.gradients["2.weight"].shape == (6, 3, 3, 3)
    assert "0.weight" not in observation.gradients


@pytest.mark.parametrize("gradients", ["float32", "int8"])
@pytest.mark.filterwarnings("ignore:.*stay in float32")
def test_an_int8_program_is_close_to_the_model_the_attacker_has(gradients: str) -> None:
    x = picture(4)
    y = torch.tensor([0, 1, 2, 3])
    dtype = whet.Int8(gradients=gradients)
    observation = seen(sigmoid_net(), x, y, dtype=dtype, calibrate=[x])
    matching = Matching(observation)
    found = matching.gradients(x, y)
    relative = float((found - matching.target).norm() / found.norm())
    assert 1e-5 < relative < 0.03


def test_a_folded_batch_norm_is_taken_out_of_the_gradient() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6)
    norm.weight.data.uniform_(0.5, 3)
    norm.bias.data.fill_(3)  # far from the corner of the ReLU, where rounding changes gradients
    norm.running_var.uniform_(0.5, 4)  # type: ignore[union-attr]
    layers = nn.Conv2d(1, 6, 3, bias=False), norm, nn.ReLU(), nn.Flatten(), nn.Linear(216, 4)
    x = picture(4)
    y = torch.tensor([0, 1, 2, 3])
    observation = seen(nn.Sequential(*layers).eval(), x, y, dtype="int8", calibrate=[x])
    assert observation.gradients.keys() == {"0.weight", "1.bias", "4.weight", "4.bias"}
    matching = Matching(observation)
    found = matching.gradients(x, y)
    pairs = zip(found.split(matching.sections()), matching.target.split(matching.sections()),
                strict=True)  # fmt: skip
    assert all(float((a - b).norm() / a.norm()) < 0.05 for a, b in pairs)


def test_masked_coordinates_are_left_out() -> None:
    x = picture()
    plain = in_torch(sigmoid_net(), x, Y)
    masks = {"5.weight": np.abs(plain.gradients["5.weight"]) > 0.1}
    sent = {n: np.where(masks.get(n, True), g, 0) for n, g in plain.gradients.items()}
    defended = plain.defended(sent, masks)
    kept = int(masks["5.weight"].sum())
    assert 0 < kept < 384 and defended.coordinates == plain.coordinates - 384 + kept
    matching = Matching(defended)
    assert float((matching.gradients(x, Y) - matching.target).abs().max()) < 1e-6
    whole = differentiable(defended, masked=False)(x, Y)
    assert len(whole) == plain.coordinates


def test_a_checkpoint_is_observed_as_it_has_been_trained() -> None:
    x = picture()
    program = whet.compile(sigmoid_net(), (x,), accumulate=True)
    trainer = program.load()
    for _ in range(3):
        trainer.step(x, Y, lr=0.5)
    trainer.gradients(x, Y)  # collected and not yet applied
    observation = observe(program, x, Y, checkpoint=trainer.save())
    matching = Matching(observation)
    assert float((matching.gradients(x, Y) - matching.target).detach().abs().max()) < 1e-5
    fresh = observe(program, x, Y)
    assert not np.allclose(fresh.gradients["5.bias"], observation.gradients["5.bias"], atol=1e-3)


def test_what_does_not_fit_is_refused() -> None:
    x = picture()
    observation = in_torch(sigmoid_net(), x, Y)
    with pytest.raises(DataError, match=r"the gradient of 0.bias has shape \(5,\)"):
        observation.defended({"0.bias": np.zeros(5, np.float32)})
    program = whet.compile(sigmoid_net(), (x,))
    with pytest.raises(DataError, match="accumulate=True"):
        observe(program, x, Y)
