"""Candidates, their outcomes, and the contributions that are made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import small_search as small
from whet.api import Source
from whet.errors import SchemeError
from whet.pipeline import Options
from whet.scheme import parameters_of
from whet.scheme.contribution import (
    DIVERGED,
    Candidate,
    Contributions,
    Outcome,
    choices,
    depth,
    names_of,
    reach,
    rising,
)
from whet.selection.planner import Planner


def parameters() -> Any:
    return parameters_of(small.imported().training.graph)


@pytest.mark.parametrize(
    "candidate", [Candidate(), Candidate(7), Candidate(12, ((3, 0.125), (30, 1.0)))]
)
def test_a_candidate_survives_as_text(candidate: Candidate) -> None:
    assert Candidate.parse(str(candidate)) == candidate


def test_a_candidate_is_a_scheme() -> None:
    chosen = Candidate(2, ((3, 0.5),)).scheme(parameters()).resolve(parameters())
    assert chosen == {
        "point.bias": None, "last.weight": (0, 1, 2, 3), "last.bias": None,
        "head.weight": None, "head.bias": None,
    }  # fmt: skip


def test_a_weight_that_is_used_otherwise_trains_whole() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.b(torch.relu(self.a(x))))
            return self.head(nn.functional.linear(x, self.a.weight.t()))

    model = Tied().eval()
    source = Source(
        model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1),
        (torch.zeros(4, 8),), None, None, None,
    )  # fmt: skip
    imported = source.imported()
    offered = choices(parameters_of(imported.training.graph))
    assert offered == {2: (1.0,), 1: (0.125, 0.25, 0.5, 1.0)}, "the last use counts"
    planner = Planner(imported, Options(grow=False))
    assert planner.run(Candidate(1, ((2, 1.0),))).ram > planner.run(Candidate(1)).ram


def test_what_there_is_to_choose_from() -> None:
    assert depth(parameters()) == small.LAYERS
    assert names_of(parameters()) == (
        "first.weight", "deep.weight", "point.weight", "last.weight", "head.weight",
    )  # fmt: skip
    assert choices(parameters()) == {
        0: (1.0,),  # one input channel
        1: (0.125, 0.25, 0.5, 1.0),
        2: (0.125, 0.25, 0.5, 1.0),
        3: (0.125, 0.25, 0.5, 1.0),
    }
    assert [reach(parameters(), layer) for layer in range(4)] == [4, 3, 2, 1]


OUTCOMES = {
    Candidate(0): Outcome(50.0, 2.0, 1, 1.0),
    Candidate(1): Outcome(52.0, 1.5, 1, 2.0),
    Candidate(2): Outcome(51.0, 1.0, 1, 3.0),
    Candidate(1, ((1, 0.5),)): Outcome(55.0, 1.25, 1, 4.0),
    Candidate(1, ((1, 1.0),)): Outcome(54.0, 1.25, 1, 5.0),
    Candidate(2, ((0, 1.0),)): Outcome(50.5, 0.75, 1, 6.0),
}


def test_gains_are_over_the_head_and_over_the_biases() -> None:
    gains = Contributions.of(OUTCOMES, "accuracy", ("a", "b", "head"))
    assert gains.biases == (0.0, 2.0, 1.0)
    assert gains.weights == {(1, 0.5): 3.0, (1, 1.0): 2.0, (0, 1.0): -0.5}
    assert gains.score(Candidate(2, ((0, 1.0), (1, 0.5)))) == 1.0 - 0.5 + 3.0
    assert gains.seconds == 21.0
    by_loss = Contributions.of(OUTCOMES, "loss", ())
    assert by_loss.biases == (0.0, 0.5, 1.0)
    assert by_loss.weights == {(1, 0.5): 0.25, (1, 1.0): 0.25, (0, 1.0): 0.25}


def test_gains_in_both_count_as_far_as_they_are_sure() -> None:
    both = Contributions.of_both(OUTCOMES, ())
    accuracies = np.quantile([50, 52, 51, 55, 54, 50.5], (0.25, 0.75), method="weibull")
    losses = np.quantile([2, 1.5, 1, 1.25, 1.25, 0.75], (0.25, 0.75), method="weibull")
    worth = float(np.diff(accuracies)[0] / np.diff(losses)[0])
    points, losses = (Contributions.of(OUTCOMES, m, ()) for m in ("accuracy", "loss"))
    assert (points.noise, losses.noise) == (1.5, 0.5), "medians of the steps"
    own = (0.5 * worth) ** 2 / ((0.5 * worth) ** 2 + 1.5**2)
    for k in range(3):
        mean = own * points.biases[k] + (1 - own) * worth * losses.biases[k]
        assert both.biases[k] == pytest.approx(mean)
    mean = own * points.weights[1, 0.5] + (1 - own) * worth * losses.weights[1, 0.5]
    assert both.weights[1, 0.5] == pytest.approx(mean)
    assert 0 < own < 1 and both.noise < min(points.noise, worth * losses.noise), "than either"
    two = {
        Candidate(3): Outcome(0.0, DIVERGED, 1, 1.0),
        Candidate(3, ((2, 1.0),)): OUTCOMES[Candidate(2)],
    }
    with_two = Contributions.of_both(OUTCOMES | two, ())
    assert with_two.biases[1] == pytest.approx(both.biases[1], rel=0.5), "it changes little"
    assert (2, 1.0) not in with_two.weights, "over what diverged everything gains"


def test_what_diverged_is_below_all_others_whatever_the_scale() -> None:
    outcomes = {
        Candidate(0): Outcome(math.nan, 5e10, 1),
        Candidate(1): Outcome(math.nan, 3e10, 1),
        Candidate(1, ((0, 1.0),)): Outcome(math.nan, DIVERGED, 1),
        Candidate(2): Outcome(math.nan, DIVERGED, 1),
        Candidate(1, ((0, 0.5),)): Outcome(math.nan, 2e10, 1),
    }
    assert not outcomes[Candidate(0)].diverged and outcomes[Candidate(2)].diverged
    gains = Contributions.of(outcomes, "loss", ())
    assert gains.biases == (0.0, 2e10, -2e10)
    assert gains.weights == {(0, 0.5): 1e10, (0, 1.0): 1e10 - 1.0}
    assert Contributions.from_json(gains.to_json()).to_json() == gains.to_json()
    assert Outcome.from_dict(outcomes[Candidate(2)].as_dict()).diverged
    tiny = [Outcome(50.0, loss, 1) for loss in (3e-7, 4e-7)]
    assert Outcome.mean(tiny).loss == pytest.approx(3.5e-7, rel=1e-6)


def test_doubted_gains_are_other_gains_of_the_same_size() -> None:
    gains = Contributions("accuracy", (0.0, 1.0, 1.0, 1.5), {(0, 1.0): 5.0, (1, 0.5): 2.0})
    assert gains.noise == 0.75, "the median of the steps that are any"
    one, two = (gains.doubted(np.random.default_rng(seed)) for seed in (0, 0))
    assert one == two != gains.doubted(np.random.default_rng(1))
    many = [gains.doubted(np.random.default_rng(seed)).weights[0, 1.0] for seed in range(400)]
    assert np.mean(many) == pytest.approx(5.0, abs=0.15)
    assert np.std(many) == pytest.approx(0.75, rel=0.15)
    assert Contributions("loss", (0.0, 0.0), {}).noise == 0.0
    sure = gains.cautious(2)
    assert sure.weights == {(0, 1.0): 3.5, (1, 0.5): 0.5} and sure.biases == gains.biases


def test_smoothing_keeps_sums_and_never_falls() -> None:
    gains = Contributions.of(OUTCOMES, "accuracy", ()).smoothed()
    assert gains.weights == {(0, 1.0): -0.5, (1, 0.5): 2.5, (1, 1.0): 2.5}
    assert gains.biases == (0.0, 1.5, 1.5)
    far = Contributions("accuracy", (0.0, 1.0, -1e6, 2.0, 3.0), {})
    assert far.smoothed().biases == (0.0, -499999.5, 1.0, 2.0, 2.5), "one that diverged is alone"
    assert rising([3.0, 1.0, 2.0, 5.0, 4.0]) == [2.0, 2.0, 2.0, 4.5, 4.5]
    assert rising([1.0, 2.0]) == [1.0, 2.0]


def test_contributions_survive_as_json() -> None:
    gains = Contributions.of(OUTCOMES, "accuracy", ("a", "b", "head"))
    assert Contributions.from_json(gains.to_json()) == gains


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measure": "loss"}'])
def test_what_are_no_contributions(text: str) -> None:
    with pytest.raises(SchemeError, match="no contributions"):
        Contributions.from_json(text)
