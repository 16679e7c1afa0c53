"""How many directions of a picture an update determines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.leaky import in_torch, picture, seen, sigmoid_net
from torch import nn

from whet.labs.privacy import defences, determined
from whet.labs.privacy.gradients import Matching
from whet.labs.privacy.identify import PIXEL, jacobian_of

X, Y = picture(), torch.tensor([2])


def test_the_jacobian_is_that_of_differences() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    matching, x = Matching(observation, dtype=torch.float64), X.double()
    jacobian = jacobian_of(observation, matching, x, Y)
    assert jacobian.shape == (observation.coordinates, 64)
    step = torch.zeros_like(x)
    step[0, 0, 3, 4] = 1e-6
    ends = [matching.gradients(x + sign * step, Y).detach() for sign in (1, -1)]
    assert torch.allclose((ends[0] - ends[1]) / 2e-6, jacobian[:, 3 * 8 + 4], atol=1e-6)


def test_full_updates_determine_everything_and_small_last_layers_do_not() -> None:
    """The last layer of this network tells its input, 12 features of a picture of 64 pixels."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, 4, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(12, 4)
    ).eval()
    found = determined(seen(model, X, Y, update="last"), X, Y)
    assert found.unknowns == 64 and found.coordinates == 52
    assert found.directions == 12
    assert found.psnr == pytest.approx(-10 * np.log10(52 / 64 * PIXEL**2), abs=0.05)
    assert determined(in_torch(sigmoid_net(), X, Y), X, Y).directions == 64


def test_noise_and_pruning_take_directions_away() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    bounds = []
    for scale in (0.0, 0.01, 0.1, 1.0):
        sent = defences.gaussian(observation.gradients, scale)
        found = determined(observation.defended(sent.gradients, noise=sent.absolute), X, Y)
        assert found.noise == pytest.approx(sent.absolute, rel=0.1, abs=1e-5)
        bounds.append(found.psnr)
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > 60 and bounds[-1] < 20
    pruned = defences.prune(observation.gradients, 0.95)
    kept = determined(observation.defended(pruned.gradients, pruned.masks), X, Y)
    assert kept.coordinates == observation.defended(pruned.gradients, pruned.masks).coordinates
    assert kept.directions < 64


def test_clipping_takes_nothing_away() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    clipped = defences.clip(observation.gradients, 0.01).gradients
    found = determined(observation.defended(clipped, scaled=True), X, Y)
    assert found.directions == 64 and found.psnr > 60
