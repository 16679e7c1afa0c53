"""Budget in, best scheme out."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ...errors import BudgetError, option
from ...report import kib
from ...scheme import Scheme, parameters_of
from ...scheme.contribution import Candidate, Contributions, Outcome
from .planner import Costs, Need, Planner
from .solve import Solver, worthwhile

QUESTIONS = 12  # a solver is asked for one budget at most
CLOSE = 0.0005  # of a budget: questions that give the same answer
PAIRED = 100  # changes that are tried together with any other: those that gain most
PLANNED = 60  # that look better by costs, and are planned to see whether one of them fits


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
    gains: Contributions = field(repr=False)  # that were added up
    candidate: Candidate
    score: float
    ram: int
    seconds: float
    planned: int  # how many programs were planned on the way
    outcome: Outcome | None = None  # after fine-tuning it
    rivals: Mapping[str, Rival] = field(default_factory=dict, repr=False)


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
    budget: int,
    gains: Contributions,
    costs: Costs,
    planned: Planned,
    solver: Solver,
    questions: int = QUESTIONS,
) -> Found:
    """The best candidate whose program, as planned, keeps the budget.

    A solver trusts costs that are a little off, by about as much for candidates that are alike. So
    it is asked again for what is left if that is taken off; of what it finds the best that really
    fits is taken, and what is left then goes to single parts.
    """
    began, before = time.perf_counter(), len(planned.known)
    check_least(planned, budget)
    best, fits, asked = Candidate(), dict[int, bool](), budget
    everything = solver(gains, costs, 100 * budget)
    if everything is not None and planned.ram(everything) <= budget:
        return finding(budget, gains, everything, planned, began, before)
    while asked not in fits and len(fits) < questions:
        found = solver(gains, costs, asked)
        candidate = Candidate() if found is None else found
        over = costs.estimate(candidate) - planned.ram(candidate)
        fits[asked] = planned.ram(candidate) <= budget
        if fits[asked] and gains.score(candidate) > gains.score(best):
            best = candidate
        if fits[asked] and over == 0:
            break
        asked = next_question(budget, over, fits)
    best = grown(best, budget, gains, costs, planned)
    return finding(budget, gains, best, planned, began, before)


def finding(
    budget: int,
    gains: Contributions,
    best: Candidate,
    planned: Planned,
    began: float,
    before: int,
) -> Found:
    """A candidate as what was found since then."""
    seconds, more = time.perf_counter() - began, len(planned.known) - before
    return Found(budget, gains, best, gains.score(best), planned.ram(best), seconds, more)


def next_question(budget: int, over: int, fits: Mapping[int, bool]) -> int:
    """As much over the budget as costs were; if that is nothing new, between yes and no."""
    close = CLOSE * budget
    if all(abs(budget + over - asked) > close for asked in fits):
        return budget + over
    yes = max((asked for asked, fit in fits.items() if fit), default=int(0.9 * min(fits)))
    no = min((asked for asked, fit in fits.items() if not fit and asked > yes),
             default=int(1.05 * yes))  # fmt: skip
    return (yes + no) // 2 if no - yes > close else yes


def check_least(planned: Planned, budget: int) -> None:
    """The head alone must fit."""
    if (need := planned.ram(Candidate())) > budget:
        raise BudgetError(
            f"{budget:,} bytes of RAM are too few to train anything of this model",
            why=f"its head alone takes {need:,}",
            try_=f"a budget of {need} or more, a smaller input or batch, or "
            f"{option('dtype', 'int8')}",
        )


def grown(
    candidate: Candidate, budget: int, gains: Contributions, costs: Costs, planned: Planned
) -> Candidate:
    """With every further part or bias that fits and gains, the most valuable first."""
    while True:
        off = planned.ram(candidate) - costs.estimate(candidate)
        steps = [
            candidate.with_part(p)
            for p in worthwhile(gains, costs)
            if costs.reaches[p[0]] <= candidate.biases
        ] + [Candidate(k, candidate.weights) for k in costs.prefixes if k > candidate.biases]
        better = best_fitting(
            steps, candidate, budget, gains, planned, 10,
            partial(within_estimate, costs, 1.02 * budget - min(off, 0)),
        )  # fmt: skip
        if better is None:
            return candidate
        candidate = better


def exchanged(found: Found, costs: Costs, planned: Planned) -> Found:
    """With one or two choices made otherwise, as often as what then fits is better."""
    began, before = time.perf_counter(), len(planned.known)
    gains = found.gains
    best: Candidate | None = found.candidate
    while best is not None:
        candidate, off = best, planned.ram(best) - costs.estimate(best)
        ones = list(changes(candidate, gains, costs))
        few = heapq.nsmallest(PAIRED, ones, key=lambda c: (-gains.score(c), c))
        twos = itertools.chain.from_iterable(changes(one, gains, costs) for one in few)
        most = int(1.005 * found.budget) - off
        best = best_fitting(
            itertools.chain(ones, twos), candidate, found.budget, gains, planned, PLANNED,
            partial(within_estimate, costs, most),
        )  # fmt: skip
    after = finding(found.budget, gains, candidate, planned, began, before)
    return replace(
        after, seconds=found.seconds + after.seconds, planned=found.planned + after.planned
    )


def changes(candidate: Candidate, gains: Contributions, costs: Costs) -> Iterator[Candidate]:
    """One part more, less or of another size, or another number of biases."""
    for layer, _ in candidate.weights:
        yield Candidate(candidate.biases, tuple(p for p in candidate.weights if p[0] != layer))
    for part in worthwhile(gains, costs):
        if costs.reaches[part[0]] <= candidate.biases and part not in candidate.weights:
            yield candidate.with_part(part)
    for k in costs.prefixes:
        if k != candidate.biases:
            yield Candidate(k, tuple(p for p in candidate.weights if costs.reaches[p[0]] <= k))


def within_estimate(costs: Costs, most: float, candidate: Candidate) -> bool:
    return costs.estimate(candidate) <= most


def best_fitting(
    candidates: Iterable[Candidate],
    than: Candidate,
    budget: int,
    gains: Contributions,
    planned: Planned,
    limit: int,
    likely: Callable[[Candidate], bool],
) -> Candidate | None:
    """The best of those better than this one that keep the budget; a few that may are planned."""
    now = gains.score(than)
    better = ((-score, c) for c in candidates if (score := gains.score(c)) > now and likely(c))
    few = heapq.nsmallest(2 * limit, better)  # each may be there twice
    first = list(dict.fromkeys(c for _, c in few))[:limit]
    return next((c for c in first if planned.ram(c) <= budget), None)


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
