"""The last few candidates for a budget: what speaks for each, and which one is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..ir import Array
from ..report import kib
from ..scheme import Parameter
from ..scheme.contribution import Candidate, Contributions, Outcome
from .analysis import Trials
from .engine import Engine
from .options import Search
from .planner import Costs
from .solve import Solver
from .within import Found, Planned, within

FINALISTS = 4
BIASES = "biases alone"
CAUTION = (1, 2)  # how often the noise of a gain is taken off
SECONDS = 10.0  # of looking for rivals that other processes, which take time to start, are worth


def finals(
    found: Sequence[Found],
    gains: Contributions,
    costs: Costs,
    planned: Planned,
    splits: Sequence[Trials],
    search: Search,
) -> list[Found]:
    """Sums of gains are a guess: the last few candidates are trained, and the best one is taken.

    Of a larger budget, what won the smaller ones is among them.
    """
    chosen: list[Found] = []
    for f in found:
        rivals = {
            **rivals_of(f, gains, costs, planned, splits[0], search),
            **{f"best of {kib(smaller.budget)}": smaller.candidate for smaller in chosen},
        }
        rivals = once_each(rivals, splits[0].parameters)
        sure = [smaller.candidate for smaller in chosen]  # known to be good already
        sure += [rivals[BIASES]] if BIASES in rivals else []
        outcomes = played(list(rivals.values()), sure, splits, kib(f.budget), search.finals)
        rivals = {name: c for name, c in rivals.items() if c in outcomes}
        best = ranked(outcomes)[0]
        chosen.append(
            replace(
                f,
                candidate=best,
                score=gains.score(best),
                ram=planned.ram(best),
                outcome=outcomes[best],
                rivals={name: (c, outcomes[c]) for name, c in rivals.items()},
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


def played(
    rivals: Sequence[Candidate],
    sure: Sequence[Candidate],
    splits: Sequence[Trials],
    budget: str,
    times: int,
) -> dict[Candidate, Outcome]:
    """One lesson each; the better half, but at least FINALISTS of them, go on to `times` of it.

    So do those that are sure of it, whatever they do here. The first is on one split of the data,
    the second on all of them.
    """
    once = splits[0].outcomes(rivals, f"rivals for {budget}")
    best = ranked(once)[: max(FINALISTS, -(-len(once) // 2))]
    best += [candidate for candidate in sure if candidate not in best]
    longer = times * splits[0].bench.lesson.epochs
    every = [
        trials.outcomes(best, f"finals for {budget}, {turn} of {len(splits)}", longer)
        for turn, trials in enumerate(splits, 1)
    ]
    return {c: Outcome.mean([outcomes[c] for outcomes in every]) for c in best}


def rivals_of(
    found: Found,
    gains: Contributions,
    costs: Costs,
    planned: Planned,
    trials: Trials,
    search: Search,
) -> dict[str, Candidate]:
    """What a scheme is chosen from, by what speaks for it."""
    smooth = {name: other.smoothed() for name, other in other_gains(gains, search).items()}
    rivals = {"sum of gains": found.candidate, "head alone": Candidate()}
    quick = found.seconds * len(smooth) < SECONDS
    finder = Finder(found.budget, costs, planned, search.solver)
    engine = Engine() if quick else trials.engine
    for done, ((name, _), best) in enumerate(engine.results(finder, list(smooth.items())), 1):
        rivals[name] = best
        trials.progress(f"looking for rivals for {kib(found.budget)}", done, len(smooth))
    return {name: rivals[name] for name in ("sum of gains", "head alone", *smooth)}


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


def other_gains(gains: Contributions, search: Search) -> dict[str, Contributions]:
    """Of biases alone, by another measure, and as they might have come out as well."""
    if not gains.outcomes:
        return {BIASES: replace(gains, weights={})}
    others: dict[str, Contributions] = {}
    best = gains
    if gains.measure == "accuracy":
        best = Contributions.of_both(gains.outcomes, gains.layers)
        others = {
            "sum of gains in loss": Contributions.of(gains.outcomes, "loss", gains.layers),
            "sum of gains in both": best,
        }
    if best.noise > 0:
        random = np.random.default_rng(search.seed)
        others |= {f"sure of {times} x noise": best.cautious(times) for times in CAUTION}
        others |= {f"doubt {i + 1}": best.doubted(random) for i in range(search.doubts)}
    return {BIASES: replace(best, weights={}), **others}


def ranked(outcomes: Mapping[Candidate, Outcome]) -> list[Candidate]:
    """The best first, in accuracy and loss together, each measured by how far rivals are apart.

    Accuracy is what counts, but on few samples a point of it is chance, and of the loss less is.
    """
    fine = {c: o for c, o in outcomes.items() if not o.diverged}
    accuracies = [o.accuracy for o in fine.values()]
    sums = in_spreads([-o.loss for o in fine.values()])
    if not any(map(math.isnan, accuracies)):
        sums = sums + in_spreads(accuracies)
    by_sum = sorted(zip(sums, fine, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return [c for _, c in by_sum] + sorted(c for c in outcomes if c not in fine)


def in_spreads(numbers: Sequence[float]) -> Array:
    """Over the standard deviation of the better half: one that failed says nothing about others."""
    array = np.array(numbers)
    better = np.sort(array)[len(array) // 2 :]
    return array / (better.std() or 1.0) if array.size else array
