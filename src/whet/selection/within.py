"""Budget in, best scheme out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import BudgetError
from ..report import kib
from ..scheme import Scheme, parameters_of
from ..scheme.contribution import Candidate, Contributions, Outcome
from .planner import Costs, Need, Planner
from .solve import Solver, worthwhile

ROUNDS = 8  # of correcting the costs by what was planned
CLOSE = 0.005  # of the budget that may stay free


@dataclass(frozen=True)
class Found:
    """The candidate of a search, with what it scores and what it really needs."""

    budget: int
    candidate: Candidate
    score: float
    ram: int
    seconds: float
    planned: int  # how many programs were planned on the way
    outcome: Outcome | None = None  # after fine-tuning it
    rivals: Mapping[str, tuple[Candidate, Outcome]] = field(default_factory=dict)


class Planned:
    """Candidates that were planned for real, each once."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.known: dict[Candidate, Need] = {}

    def ram(self, candidate: Candidate) -> int:
        if candidate not in self.known:
            self.known[candidate] = self.planner.run(candidate)
        return self.known[candidate].ram


def within(
    budget: int, gains: Contributions, costs: Costs, planned: Planned, solver: Solver
) -> Found:
    """The best candidate whose program, as planned, keeps the budget.

    A solver trusts costs that are a little off: it is told more or less than the budget until what
    it finds just fits. What is left then goes to single parts, each planned for real.
    """
    began, before = time.perf_counter(), len(planned.known)
    best: Candidate | None = None
    asked, seen = budget, set()
    for _ in range(ROUNDS):
        candidate = solver(gains, costs, asked)
        if candidate is None or candidate in seen:
            break
        seen.add(candidate)
        free = budget - planned.ram(candidate)
        if free >= 0 and (best is None or gains.score(candidate) > gains.score(best)):
            best = candidate
        if 0 <= free < CLOSE * budget:
            break
        asked += free
    if best is None:
        check_least(planned, budget)
        best = Candidate()
    best = grown(best, budget, gains, costs, planned)
    seconds = time.perf_counter() - began
    planned_here = len(planned.known) - before
    score = gains.score(best)
    return Found(budget, best, score, planned.ram(best), seconds, planned_here)


def check_least(planned: Planned, budget: int) -> None:
    """The head alone must fit."""
    if (need := planned.ram(Candidate())) > budget:
        raise BudgetError(
            f"{kib(budget)} of RAM are too few to train anything of this model",
            why=f"its head alone takes {kib(need)}",
            try_=f"a budget of {need} or more, a smaller input, or int8",
        )


def grown(
    candidate: Candidate, budget: int, gains: Contributions, costs: Costs, planned: Planned
) -> Candidate:
    """With every further part or bias that fits and gains, the most valuable first."""
    while True:
        steps = [
            candidate.with_part(p)
            for p in worthwhile(gains, costs)
            if costs.reaches[p[0]] <= candidate.biases
        ] + [Candidate(k, candidate.weights) for k in costs.prefixes if k > candidate.biases]
        now = gains.score(candidate)
        better = sorted((c for c in steps if gains.score(c) > now),
                        key=lambda c: (-gains.score(c), c))  # fmt: skip
        room = [c for c in better if costs.estimate(c) <= 1.02 * budget][:10]
        fitting = next((c for c in room if planned.ram(c) <= budget), None)
        if fitting is None:
            return candidate
        candidate = fitting


def scheme_for(found: Found, gains: Contributions, planner: Planner, name: str = "auto") -> Scheme:
    """As a Scheme whose origin is the evidence for each of its choices."""
    parameters = parameters_of(planner.model.training.graph)
    return found.candidate.scheme(parameters, name, evidence(found, gains))


def evidence(found: Found, gains: Contributions) -> str:
    unit = "points of accuracy" if gains.measure == "accuracy" else f"by {gains.measure}"
    c = found.candidate
    lines = [
        f"chosen for {kib(found.budget)}, takes {kib(found.ram)}; gains {found.score:+.2f} {unit} "
        "over the head alone, if gains add up",
        f"last {c.biases} biases {gains.biases[c.biases]:+.2f}",
    ]
    lines += [
        f"{gains.layers[layer] if gains.layers else layer} {ratio:g} "
        f"{gains.weights.get((layer, ratio), 0.0):+.2f}"
        for layer, ratio in c.weights
    ]
    if found.outcome is not None:
        lines.append(f"fine-tuned, on held-out samples: {found.outcome}")
    return "; ".join(lines)
