"""Labels from the gradient of the last layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.leaky import in_torch, picture, seen, sigmoid_net
from torch import nn

import whet
from whet.labs.privacy import Observation, defences
from whet.labs.privacy.idlg import counted, labels


def without(observation: Observation, *names: str) -> Observation:
    kept = {n: g for n, g in observation.gradients.items() if n not in names}
    return replace(observation, gradients=kept)


@pytest.mark.parametrize("label", range(4))
def test_the_label_of_a_single_sample_is_exact(label: int) -> None:
    observation = in_torch(sigmoid_net(seed=label), picture(seed=label), torch.tensor([label]))
    for seen_of_it in (
        observation,
        without(observation, "5.bias"),
        without(observation, "5.weight"),
    ):
        found = labels(seen_of_it)
        assert found is not None and found.tolist() == [label]
    assert labels(without(observation, "5.weight", "5.bias")) is None


def test_defences_that_hide_the_picture_do_not_hide_the_label() -> None:
    observation = in_torch(sigmoid_net(), picture(), torch.tensor([1]))
    for sent in (
        defences.prune(observation.gradients, 0.9),
        defences.int8(observation.gradients),
        defences.clip_and_noise(observation.gradients, 1.0, 0.01),
    ):
        found = labels(observation.defended(sent.gradients, sent.masks))
        assert found is not None and found.tolist() == [1]


@pytest.mark.parametrize("hidden", ["5.bias", "5.weight"])
def test_labels_of_a_batch_are_counted(hidden: str) -> None:
    x, y = picture(6), torch.tensor([3, 1, 1, 0, 3, 3])
    observation = without(in_torch(sigmoid_net(), x, y), hidden)
    found = labels(observation)
    assert found is not None and found.tolist() == [0, 1, 1, 3, 3, 3]


@pytest.mark.parametrize("limit", [1.0, 0.1, 0.01])
def test_clipping_does_not_hide_the_labels_of_a_batch(limit: float) -> None:
    x, y = picture(6), torch.tensor([3, 1, 1, 0, 3, 3])
    observation = in_torch(sigmoid_net(), x, y)
    sent = defences.clip(observation.gradients, limit)
    assert defences.norm(sent.gradients) < 0.999 * defences.norm(observation.gradients)
    found = labels(observation.defended(sent.gradients, scaled=sent.scaled))
    assert found is not None and found.tolist() == [0, 1, 1, 3, 3, 3]


def test_the_count_is_the_share_that_is_missing() -> None:
    predicted = np.array([0.5, 0.3, 0.2])
    gradient = predicted - np.array([0.25, 0, 0.75])
    assert counted(gradient, predicted, 4).tolist() == [0, 2, 2, 2]


def test_a_sliced_last_layer_tells_the_labels_of_a_batch() -> None:
    scheme = whet.Scheme([whet.Rule("5.weight", channels=0.5)])
    observation = seen(sigmoid_net(), picture(4), torch.tensor([2, 2, 0, 1]), update=scheme)
    assert observation.gradients.keys() == {"5.weight"}
    assert observation.gradients["5.weight"].shape == (4, 48)
    found = labels(observation)
    assert found is not None and found.tolist() == [0, 1, 2, 2]


def test_other_losses_tell_no_label() -> None:
    observation = in_torch(sigmoid_net(), picture(), torch.tensor([1]))
    assert labels(replace(observation, loss=nn.MSELoss())) is None
