"""The last few candidates for a budget: what speaks for each, and which one is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..report import kib
from ..scheme import Parameter
from ..scheme.contribution import Candidate, Contributions, Outcome
from .analysis import Trials
from .belief import Belief, Measure
from .engine import Engine
from .options import Search
from .planner import Costs
from .solve import Solver
from .within import Found, Planned, Rival, within

HEAD, SUM, BIASES = "head alone", "sum of gains", "biases alone"
SECONDS = 10.0  # of looking for rivals that other processes, which take time to start, are worth


def finals(
    found: Sequence[Found],
    belief: Belief | None,
    costs: Costs,
    planned: Planned,
    splits: Sequence[Trials],
    search: Search,
) -> list[Found]:
    """That gains add up is a guess: the last few candidates are trained, and one is taken.

    Of a larger budget, what won the smaller ones is among them. There is no belief where gains are
    guesses of a proxy.
    """
    seen: list[dict[Candidate, Outcome]] = [{} for _ in splits]
    chosen: list[Found] = []
    for f in found:
        rivals = {
            **rivals_of(f, belief, costs, planned, splits[0], search),
            **{f"best of {kib(smaller.budget)}": smaller.candidate for smaller in chosen},
        }
        rivals = once_each(rivals, splits[0].parameters)
        play(list(rivals.values()), splits, seen, kib(f.budget), search.finals)
        outcomes = {c: Outcome.mean([own[c] for own in seen]) for c in rivals.values()}
        best = taken(outcomes, belief, seen)
        chosen.append(
            replace(
                f,
                candidate=best,
                score=f.gains.score(best),
                ram=planned.ram(best),
                outcome=outcomes[best],
                rivals={n: Rival(c, planned.ram(c), outcomes[c]) for n, c in rivals.items()},
            )
        )
    return chosen


def once_each(
    rivals: Mapping[str, Candidate], parameters: Sequence[Parameter]
) -> dict[str, Candidate]:
    """By its first name, of all that train the same; layers may have no bias."""
    first: dict[str, str] = {}
    for name, candidate in rivals.items():
        first.setdefault(str(candidate.scheme(parameters).resolve(parameters)), name)
    return {name: rivals[name] for name in first.values()}


def play(
    rivals: Sequence[Candidate],
    splits: Sequence[Trials],
    seen: Sequence[dict[Candidate, Outcome]],
    budget: str,
    times: int,
) -> None:
    """Train each for so many times a lesson, on every split of the data."""
    for turn, (trials, own) in enumerate(zip(splits, seen, strict=True), 1):
        what = f"finals for {budget}, {turn} of {len(splits)}"
        own |= trials.outcomes(rivals, what, times * trials.bench.lesson.epochs)


def taken(
    outcomes: Mapping[Candidate, Outcome],
    belief: Belief | None,
    seen: Sequence[Mapping[Candidate, Outcome]],
) -> Candidate:
    """The best of those that beat the head alone: by all that is known, or as it came out."""
    measure = Measure.of(outcomes) if belief is None else belief.measure
    over = dict(zip(outcomes, measure.values(outcomes), strict=True))
    worth = over if belief is None else belief.in_company(seen)
    worst = -math.inf if outcomes[Candidate()].diverged else 0.0
    fine = [c for c in outcomes if over[c] > worst and not outcomes[c].diverged]
    return max(fine, key=lambda c: worth[c], default=Candidate())


def rivals_of(
    found: Found,
    belief: Belief | None,
    costs: Costs,
    planned: Planned,
    trials: Trials,
    search: Search,
) -> dict[str, Candidate]:
    """What a scheme is chosen from, by what speaks for it."""
    others = {BIASES: replace(found.gains, weights={})}
    if belief is not None:
        random = np.random.default_rng(search.seed)
        others |= {f"doubt {i + 1}": belief.drawn(random) for i in range(search.doubts)}
    rivals = {HEAD: Candidate(), SUM: found.candidate}
    finder = Finder(found.budget, costs, planned, search.solver)
    engine = Engine() if found.seconds * len(others) < SECONDS else trials.engine
    for done, ((name, _), best) in enumerate(engine.results(finder, list(others.items())), 1):
        rivals[name] = best
        trials.progress(f"looking for rivals for {kib(found.budget)}", done, len(others))
    return {name: rivals[name] for name in (HEAD, SUM, *others)}


@dataclass(frozen=True)
class Finder:
    """Finds the best sum within a budget; goes to worker processes."""

    budget: int
    costs: Costs
    planned: Planned
    solver: Solver

    def run(self, named: tuple[str, Contributions]) -> Candidate:
        _, gains = named
        return within(self.budget, gains, self.costs, self.planned, self.solver).candidate
