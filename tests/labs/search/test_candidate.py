"""Candidates, and the contributions that are made of their outcomes."""

from __future__ import annotations

import json
import math

import torch
from torch import nn

import small_search as small
import whet
from whet.labs.common.validate import DIVERGED, Outcome
from whet.labs.search.candidate import Candidate, Contributions, Space


def test_a_candidate_is_a_scheme() -> None:
    assert small.space().trained(Candidate(2, ((3, 0.5),))) == {
        "point.bias": None, "last.weight": (0, 1, 2, 3), "last.bias": None,
        "head.weight": None, "head.bias": None,
    }  # fmt: skip


def test_the_space_of_candidates() -> None:
    space = small.space()
    assert space.depth == small.LAYERS
    assert space.layers == (
        "first.weight", "deep.weight", "point.weight", "last.weight", "head.weight",
    )  # fmt: skip
    fractions = (0.125, 0.25, 0.5, 1.0)
    assert space.ratios == {0: (1.0,), 1: fractions, 2: fractions, 3: fractions}
    assert [space.reach(layer) for layer in range(4)] == [4, 3, 2, 1]


def test_a_weight_that_is_used_in_two_ways_trains_whole() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.b(torch.relu(self.a(x))))
            return self.head(nn.functional.linear(x, self.a.weight.t()))

    bench = whet.Workbench.of(Tied().eval(), (torch.zeros(4, 8),))
    assert Space(bench.parameters).ratios == {2: (1.0,), 1: (0.125, 0.25, 0.5, 1.0)}
    one, more = (c.scheme(bench.parameters) for c in (Candidate(1), Candidate(1, ((2, 1.0),))))
    assert bench.plan(more).ram > bench.plan(one).ram


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
    by_loss = Contributions.of(OUTCOMES, "loss", ())
    assert by_loss.biases == (0.0, 0.5, 1.0)
    assert by_loss.weights == {(1, 0.5): 0.25, (1, 1.0): 0.25, (0, 1.0): 0.25}
    body = json.loads(gains.to_json())
    assert body["weights"] == [[1, 0.5, 3.0], [1, 1.0, 2.0], [0, 1.0, -0.5]]
    assert body["outcomes"]["biases-1 1@0.5"] == OUTCOMES[Candidate(1, ((1, 0.5),))].as_dict()


def test_diverged_trials_are_below_all_others_whatever_the_scale() -> None:
    outcomes = {
        Candidate(0): Outcome(math.nan, 5e10, 1),
        Candidate(1): Outcome(math.nan, 3e10, 1),
        Candidate(1, ((0, 1.0),)): Outcome(math.nan, DIVERGED, 1),
        Candidate(2): Outcome(math.nan, DIVERGED, 1),
        Candidate(1, ((0, 0.5),)): Outcome(math.nan, 2e10, 1),
    }
    gains = Contributions.of(outcomes, "loss", ())
    assert gains.biases == (0.0, 2e10, -2e10)
    assert gains.weights == {(0, 0.5): 1e10, (0, 1.0): 1e10 - 1.0}
    assert Outcome.from_dict(outcomes[Candidate(2)].as_dict()).diverged


def test_the_mean_of_outcomes_diverges_if_one_does() -> None:
    fine, gone = Outcome(80.0, 1.0, 2, 3.0), Outcome(0.0, DIVERGED, 1, 1.0)
    assert Outcome.mean([fine, gone]).diverged
    assert Outcome.mean([fine, Outcome(70.0, 2.0, 2, 3.0)]) == Outcome(75.0, 1.5, 2, 6.0)
