"""Costs by the planner, and the largest sum of gains within a budget."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import small_search as small
import whet
from whet.labs.search.candidate import Candidate, Contributions, Space
from whet.labs.search.solve import best_within, evolution, exact
from whet.models import mcunet_5fps

BUDGETS = (40_000, 42_000, 45_000, 60_000, 90_000)


def made_up_gains(seed: int) -> Contributions:
    random, space = np.random.default_rng(seed), small.space()
    biases = (0.0, *(float(g) for g in random.normal(0.5, 1, space.depth)))
    weights = {
        (i, r): float(g)
        for i, ratios in space.ratios.items()
        for r, g in zip(ratios, np.sort(random.normal(1, 1, len(ratios))), strict=True)
    }
    return Contributions("accuracy", biases, weights)


def every_combination() -> Iterator[Candidate]:
    space = small.space()
    for k in range(space.depth + 1):
        reached = [i for i in space.ratios if space.reach(i) <= k]
        for ratios in itertools.product(*[(0.0, *space.ratios[i]) for i in reached]):
            yield Candidate(k, tuple((i, r) for i, r in zip(reached, ratios, strict=True) if r))


def random_candidates(space: Space, count: int) -> Iterator[Candidate]:
    random = np.random.default_rng(0)
    for _ in range(count):
        k = int(random.integers(0, space.depth + 1))
        layers = [i for i in space.ratios if space.reach(i) <= k and random.random() < 0.4]
        yield Candidate(k, tuple((i, float(random.choice(space.ratios[i]))) for i in layers))


def test_planned_bytes_are_those_of_compiled_programs() -> None:
    model, space = small.network(), small.space()
    for candidate in random_candidates(space, 8):
        update: Any = candidate.scheme(space.parameters)
        program = whet.compile(model, (small.example(),), update=update)
        assert small.plans().ram(candidate) == program.memory["ram"]


@pytest.mark.slow
def test_planned_bytes_are_those_of_compiled_programs_of_mcunet() -> None:
    """A hundred random candidates, to the byte."""
    model, x = mcunet_5fps(10, folded=True).eval(), torch.zeros(1, 3, 128, 128)
    options: Any = {"target": "cortex-m7", "ram": "4M", "dtype": "int8",
                    "calibrate": [torch.randn(1, 3, 128, 128)]}  # fmt: skip
    bench = whet.Workbench.of(model, (x,), **options)
    for candidate in random_candidates(Space(bench.parameters), 100):
        update = candidate.scheme(bench.parameters)
        program = whet.compile(model, (x,), update=update, **options)
        assert bench.plan(update).ram == program.memory["ram"]


def test_estimates_are_near_and_of_single_parts_exact() -> None:
    costs, plans = small.costs(), small.plans()
    for k, need in costs.prefixes.items():
        assert costs.estimate(Candidate(k)) == need.ram
    for part, need in costs.parts.items():
        assert costs.estimate(Candidate(costs.reaches[part[0]], (part,))) == need.ram
    for candidate in random_candidates(small.space(), 20):
        assert costs.estimate(candidate) == pytest.approx(plans.ram(candidate), rel=0.25)


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_solution_is_that_of_trying_everything(seed: int) -> None:
    gains, costs = made_up_gains(seed), small.costs()
    smallest = min(need.ram for need in costs.prefixes.values())
    largest = max(need.ram for need in costs.parts.values())
    for budget in np.linspace(smallest, 1.1 * largest, 5).astype(int):
        best = max(gains.score(c) for c in every_combination() if costs.estimate(c) <= budget)
        found = exact(gains, costs, int(budget))
        assert found is not None and costs.estimate(found) <= budget
        assert gains.score(found) == pytest.approx(best)
    assert exact(gains, costs, smallest - 1000) is None
    assert evolution(gains, costs, smallest - 1000) is None


@pytest.mark.parametrize("seed", range(2))
def test_evolution_comes_close_to_the_exact_solution_and_never_beats_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.labs.search.solve.GENERATIONS", 30)
    gains, costs = made_up_gains(seed), small.costs()
    for budget in (42_000, 60_000):
        best, found = exact(gains, costs, budget), evolution(gains, costs, budget, seed)
        assert best is not None and found is not None and costs.estimate(found) <= budget
        assert 0.95 * gains.score(best) <= gains.score(found) <= gains.score(best) + 1e-9
        assert found == evolution(gains, costs, budget, seed), "the same seed, the same result"


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_gains_of_any_size_count(scale: float) -> None:
    gains, costs = made_up_gains(1), small.costs()
    budget = sorted(need.ram for need in costs.parts.values())[8]
    scaled = replace(
        gains,
        biases=tuple(scale * gain for gain in gains.biases),
        weights={part: scale * gain for part, gain in gains.weights.items()},
    )
    assert exact(scaled, costs, budget) == exact(gains, costs, budget)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_fits_as_planned(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    gains, costs, plans = made_up_gains(seed), small.costs(), small.plans()
    capfd.readouterr()
    for budget in BUDGETS:
        found = best_within(budget, gains, costs, plans, exact)
        assert plans.ram(found) <= budget and gains.score(found) > 0
    assert capfd.readouterr().out == "", "the solver prints nothing"


@pytest.mark.slow
def test_what_is_found_is_nearly_the_best_that_fits() -> None:
    """Against planning every combination: 13 of 15 are the best one, the worst has 83 % of its sum.

    The mean is 97.9 %. Less is found where estimated costs are off.
    """
    costs, plans = small.costs(), small.plans()
    needs = {c: plans.ram(c) for c in every_combination()}
    shares = []
    for seed, budget in itertools.product(range(3), BUDGETS):
        gains = made_up_gains(seed)
        best = max(gains.score(c) for c, need in needs.items() if need <= budget)
        found = best_within(budget, gains, costs, plans, exact)
        shares.append(gains.score(found) / best)
    assert min(shares) > 0.8 and np.mean(shares) > 0.95 and max(shares) <= 1 + 1e-9
