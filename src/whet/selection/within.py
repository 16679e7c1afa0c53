"""Budget in, best scheme out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import BudgetError
from ..report import kib
from ..scheme import Scheme, parameters_of
from ..scheme.contribution import Candidate, Contributions, Outcome
from .planner import Costs, Need, Planner
from .solve import Solver, worthwhile


@dataclass(frozen=True)
class Rival:
    """Another candidate for a budget, and how it did."""

    candidate: Candidate
    ram: int
    outcome: Outcome


@dataclass(frozen=True)
class Found:
    """The candidate of a search, with what it scores and what it really needs."""

    budget: int
    gains: Contributions  # that were added up
    candidate: Candidate
    score: float
    ram: int
    seconds: float
    planned: int  # how many programs were planned on the way
    outcome: Outcome | None = None  # after fine-tuning it
    rivals: Mapping[str, Rival] = field(default_factory=dict)


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

    A solver trusts costs that are a little off: it is told less and more than the budget, and of
    what it finds the best that really fits is taken. What is left then goes to single parts.
    """
    began, before = time.perf_counter(), len(planned.known)
    check_least(planned, budget)
    best = Candidate()
    for asked in asking(budget):
        candidate = solver(gains, costs, int(asked))
        if candidate is not None and gains.score(candidate) > gains.score(best):
            best = candidate if planned.ram(candidate) <= budget else best
    best = grown(best, budget, gains, costs, planned)
    seconds = time.perf_counter() - began
    planned_here = len(planned.known) - before
    score = gains.score(best)
    return Found(budget, gains, best, score, planned.ram(best), seconds, planned_here)


def asking(budget: int) -> Iterator[float]:
    """What a solver is told instead of the budget: about that first, then further away."""
    for share in (1.0, 0.98, 1.02, 0.95, 1.05, 0.9, 1.1, 1.2, 1.35, 1.5):
        yield share * budget


def check_least(planned: Planned, budget: int) -> None:
    """The head alone must fit."""
    if (need := planned.ram(Candidate())) > budget:
        raise BudgetError(
            f"{budget:,} bytes of RAM are too few to train anything of this model",
            why=f"its head alone takes {need:,}",
            try_=f"a budget of {need} or more, a smaller input or batch, or int8",
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
    """Why each part is in it: what it adds to the sum, and what was measured of it alone."""
    c = found.candidate
    unit = "points of accuracy" if gains.measure == "accuracy" else f"by {gains.measure}"
    lines = [
        f"chosen for {kib(found.budget)}, takes {kib(found.ram)}; gains {found.score:+.3g} {unit} "
        "over the head alone, if gains add up",
        f"last {c.biases} biases {found.gains.biases[c.biases]:+.3g}"
        + alone(Candidate(c.biases), Candidate(), gains),
    ]
    for layer, ratio in c.weights:
        part = (layer, ratio)
        reached = len(gains.biases) - 1 - layer
        lines.append(
            f"{gains.layers[layer] if gains.layers else layer}, {ratio:g} of its channels "
            f"{found.gains.weights.get(part, 0.0):+.3g}"
            + alone(Candidate(reached, (part,)), Candidate(reached), gains)
        )
    if found.outcome is not None:
        lines.append(f"fine-tuned, on held-out samples: {found.outcome}")
    return "; ".join(lines)


def alone(candidate: Candidate, base: Candidate, gains: Contributions) -> str:
    """How a part did that was tried by itself."""
    known = [gains.outcomes.get(c) for c in (candidate, base)]
    if candidate == base or None in known:
        return ""
    now, before = (o for o in known if o is not None)
    if now.diverged or before.diverged:
        return ""
    if math.isnan(now.accuracy):
        return f" (alone: loss {now.loss - before.loss:+.3g})"
    points = now.accuracy - before.accuracy
    return f" (alone: {points:+.2f} points, loss {now.loss - before.loss:+.3g})"
