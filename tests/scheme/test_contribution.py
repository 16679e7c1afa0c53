"""Candidates, their outcomes, and the contributions that are made of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import small_search as small
from whet.api import Source
from whet.errors import SchemeError
from whet.labs.search.planner import Planner
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
)


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


def test_contributions_survive_as_json() -> None:
    gains = Contributions.of(OUTCOMES, "accuracy", ("a", "b", "head"))
    assert Contributions.from_json(gains.to_json()) == gains


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measure": "loss"}'])
def test_what_are_no_contributions(text: str) -> None:
    with pytest.raises(SchemeError, match="no contributions"):
        Contributions.from_json(text)
