"""Attacks recover what they can from gradients of programs, and say when they diverged."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.leaky import in_torch, picture, seen, sigmoid_net
from torch import nn

from whet.errors import DataError, WhetError
from whet.labs.privacy import Recovered, attack, defences, score
from whet.labs.privacy.analytic import features
from whet.labs.privacy.dlg import dlg
from whet.labs.privacy.recovered import Array
from whet.labs.privacy.starts import State, best_of

X, Y = picture(), torch.tensor([2])


def test_dlg_recovers_a_picture_from_a_program() -> None:
    observation = seen(sigmoid_net(), X, Y)
    calls: list[tuple[int, int, float]] = []

    def progress(start: int, iteration: int, loss: float, images: Array) -> None:
        assert images.shape == X.shape
        calls.append((start, iteration, loss))

    found = attack(observation, restarts=2, iterations=60, on_progress=progress)
    assert score(X, found.images).mse[0] < 1e-4
    assert found.labels.tolist() == [2] and found.diverged == 0
    assert found.losses[found.chosen] == min(found.losses)
    assert [(s, i) for s, i, _ in calls][:3] == [(0, 0), (0, 10), (0, 20)]
    assert [s.iteration for s in found.history] == [10 * i for i in range(len(found.history))]
    again = attack(observation, restarts=2, iterations=60)
    assert np.array_equal(again.images, found.images), "the same seed, the same result"


@pytest.mark.slow
def test_dlg_recovers_a_picture_of_32_pixels_exactly() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, 2, 2), nn.Sigmoid(), nn.Conv2d(12, 12, 5, 2, 2), nn.Sigmoid(),
        nn.Conv2d(12, 12, 5, 1, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(768, 10),
    ).eval()  # fmt: skip
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    x = picture(1, 3, 32)
    observation = seen(model, x, torch.tensor([7]))
    assert observation.coordinates == 15826
    found = attack(observation, restarts=2, iterations=500)
    assert score(x, found.images).mse[0] < 1e-3 and found.labels.tolist() == [7]
    pruned = defences.prune(observation.gradients, 0.7)
    sent = observation.defended(pruned.gradients, pruned.masks)
    scored = score(x, attack(sent, restarts=1, iterations=300).images)
    assert scored.mean > 20 > scored.baseline[0], "70 % pruning does not hide it"


def test_the_published_attack_finds_the_label_by_itself() -> None:
    found = attack(in_torch(sigmoid_net(), X, Y), adaptive=False, iterations=150, restarts=3)
    assert len(found.losses) == 3 and found.labels.tolist() == [2]
    assert score(X, found.images).mse[0] < 1e-2


def test_a_batch_is_recovered_up_to_its_order() -> None:
    x, y = picture(4, seed=3), torch.tensor([3, 1, 0, 2])
    found = attack(in_torch(sigmoid_net(), x, y), restarts=1, iterations=120)
    scored = score(x, found.images)
    assert found.labels.tolist() == [0, 1, 2, 3]
    assert found.labels[scored.order].tolist() == y.tolist()
    assert scored.recovered(20) == 1


def test_one_sample_at_a_time_gets_there_too() -> None:
    x, y = picture(2, seed=3), torch.tensor([3, 1])
    found = dlg(in_torch(sigmoid_net(), x, y), restarts=1, iterations=160, one_by_one=True)
    assert score(x, found.images).recovered(20) == 1


def test_an_attacker_who_knows_the_mask_does_better() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    pruned = defences.prune(observation.gradients, 0.5)
    sent = observation.defended(pruned.gradients, pruned.masks)
    knows, ignores = (
        score(X, dlg(sent, restarts=1, iterations=80, masked=masked).images).mean
        for masked in (True, False)
    )
    assert knows > ignores + 6


def test_clipping_alone_hides_nothing() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    sent = defences.clip(observation.gradients, 0.01).gradients
    found = dlg(observation.defended(sent, scaled=True), restarts=1, iterations=80)
    assert score(X, found.images).mse[0] < 1e-3


def test_an_adaptive_attacker_stops_at_the_noise() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    noisy = defences.gaussian(observation.gradients, 0.1)
    known = observation.defended(noisy.gradients, noise=noisy.absolute)
    stopped = dlg(known, restarts=1, iterations=80)
    overfit = dlg(observation.defended(noisy.gradients), restarts=1, iterations=80)
    assert stopped.evaluations < overfit.evaluations
    assert score(X, stopped.images).mean > score(X, overfit.images).mean


def test_cosine_inverts_a_relu_network_with_batch_norm() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(1024, 4)).eval()
    observation = seen(model, X, Y)
    found = attack(observation, method="cosine", restarts=1, iterations=200)
    scored = score(X, found.images)
    assert scored.mean > scored.baseline[0] + 6
    assert found.images.min() >= 0 and found.images.max() <= 1


def test_a_first_linear_layer_gives_the_input_away() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    found = attack(seen(model, X, Y), method="analytic")
    assert np.abs(found.images - X.numpy()).max() < 1e-5
    assert found.labels.tolist() == [2]


def test_a_last_layer_gives_the_features_away() -> None:
    model = sigmoid_net()
    observation = seen(model, X, Y, update="last")
    with torch.no_grad():
        expected = model[:5](X)[0].numpy()  # type: ignore[index]
    found = features(observation)
    assert found is not None and np.abs(found - expected).max() < 1e-5
    with pytest.raises(DataError, match="no linear layer that is given the input"):
        attack(observation, method="analytic")


def test_diverged_starts_are_counted_and_not_picked() -> None:
    observation = in_torch(sigmoid_net(), X, Y)
    runs = iter([[1.0, math.nan], [1.0, 2.0, 2.0], [1.0, 0.5, 0.2], [1.0, 0.3]])

    def run(_: torch.Generator) -> list[State]:
        return [State(loss, X * loss, Y, i + 1) for i, loss in enumerate(next(runs))]

    found = best_of("made up", observation, run, restarts=4, seed=0)
    assert found.diverged == 2 and found.chosen == 2 and found.losses == (1.0, 1.0, 0.2, 0.3)
    assert np.allclose(found.images, 0.2 * X.numpy()) and not found.failed
    assert found.evaluations == 2 + 3 + 3 + 2
    assert Recovered("dlg", found.images, found.labels, (1.0,), 1).failed


def test_an_unknown_attack_is_refused() -> None:
    with pytest.raises(WhetError, match="there is no attack 'magic'"):
        attack(in_torch(sigmoid_net(), X, Y), method="magic")
