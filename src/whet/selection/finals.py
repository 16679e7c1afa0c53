"""Whole candidates, tried in rounds: what came out of one tells what to try in the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..report import kib
from ..scheme.contribution import Candidate, Contributions, Outcome
from .analysis import Trials
from .belief import Belief, Measure
from .company import Company
from .engine import Engine
from .options import Search
from .planner import Costs, Need
from .solve import Solver
from .within import Found, Planned, Rival, within

HEAD, SUM, BIASES, BELIEVED = "head alone", "sum of gains", "biases alone", "believed best"
QUESTIONS = 4  # to a solver for each draw, which need not be the very best
LAST = 4  # candidates for each budget that go on to all splits
SECONDS = (
    10.0  # of looking for candidates that other processes, which take time to start, are worth
)


def finals(
    found: Sequence[Found],
    belief: Belief | None,
    costs: Costs,
    planned: Planned,
    splits: Sequence[Trials],
    search: Search,
) -> list[Found]:
    """That gains add up is a guess: whole candidates are trained, and one is taken.

    In every round some are drawn for each budget, the best by gains that are as likely as any, and
    tried on two splits of the data, which changes what is likely. In the end those that are
    believed to be the best are tried on all splits. Where gains are guesses of a proxy there is
    nothing to draw from.
    """
    ring = Ring(belief, costs, planned, splits, search)
    ring.enter(found[0].budget, HEAD, Candidate())
    for f in found:
        ring.enter(f.budget, SUM, f.candidate)
    ring.look([(f, BIASES, replace(f.gains, weights={})) for f in found])
    ring.play_everywhere(ring.entered, "finals")
    if belief is not None:
        for number in range(1, search.rounds + 1):
            ring.round(number, found)
        ring.last(found)
    company = None if belief is None else ring.company()
    chosen: list[Found] = []
    for f in found:
        chosen.append(ring.taken(f, company, chosen))
    return chosen


@dataclass
class Ring:
    """Candidates, and how each did on the splits it was tried on."""

    belief: Belief | None
    costs: Costs
    planned: Planned
    splits: Sequence[Trials]
    search: Search
    entered: dict[Candidate, tuple[int, str]] = field(default_factory=dict)  # for what, and as what
    seen: list[dict[Candidate, Outcome]] = field(default_factory=list)
    twins: dict[str, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = [{} for _ in self.splits]

    def enter(self, budget: int, name: str, candidate: Candidate) -> Candidate:
        """The first of those that train the same, as layers may have no bias."""
        parameters = self.splits[0].parameters
        trains = str(candidate.scheme(parameters).resolve(parameters))
        first = self.twins.setdefault(trains, candidate)
        self.entered.setdefault(first, (budget, name))
        return first

    def look(
        self, wanted: Sequence[tuple[Found, str, Contributions]], questions: int | None = None
    ) -> list[Candidate]:
        """The best candidate within each budget by each of these gains."""
        finder = Finder(self.costs, self.planned, self.search.solver, questions)
        jobs = [(i, f.budget, gains) for i, (f, _, gains) in enumerate(wanted)]
        trials, best = self.splits[0], dict[int, Candidate]()
        seconds = sum(f.seconds for f, _, _ in wanted)
        engine = Engine() if seconds < SECONDS else trials.engine
        for (i, _, _), (candidate, need) in engine.results(finder, jobs):
            self.planned.known[candidate] = need
            best[i] = candidate
            trials.progress("looking for candidates", len(best), len(jobs))
        return [self.enter(f.budget, name, best[i]) for i, (f, name, _) in enumerate(wanted)]

    def round(self, number: int, found: Sequence[Found]) -> None:
        """Draw some for each budget and try them on two splits, on others in every round."""
        company = self.company()
        wanted = []
        for f in found:
            random = np.random.default_rng([self.search.seed, number, f.budget])
            around = self.fitting(f.budget, company)[0]
            wanted += [(f, f"draw {number}.{i}", company.drawn(random, around))
                       for i in range(1, self.search.draws + 1)]  # fmt: skip
        drawn = self.look(wanted, QUESTIONS)
        new = [c for c in drawn if not any(c in own for own in self.seen)]
        for turn in sorted({turn % len(self.splits) for turn in (2 * number - 2, 2 * number - 1)}):
            self.play(new, turn, f"finals, round {number}")

    def last(self, found: Sequence[Found]) -> None:
        """Those believed to be the best, one that nobody may have tried among them."""
        company = self.company()
        few = {f.budget: self.fitting(f.budget, company)[:LAST] for f in found}
        wanted = [(f, BELIEVED, company.expected(few[f.budget][0])) for f in found]
        every = [*self.look(wanted), *(c for some in few.values() for c in some)]
        self.play_everywhere(every, "finals, the last")

    def company(self) -> Company:
        assert self.belief is not None
        return Company.of(self.belief, self.seen)

    def fitting(self, budget: int, company: Company) -> list[Candidate]:
        """All that were tried and keep the budget, the best first."""
        tried = [c for c in self.entered if any(c in own for own in self.seen)]
        return sorted((c for c in tried if self.planned.ram(c) <= budget),
                      key=lambda c: (-company.worth(c), c))  # fmt: skip

    def play_everywhere(self, candidates: Iterable[Candidate], what: str) -> None:
        for turn in range(len(self.splits)):
            self.play(candidates, turn, what)

    def play(self, candidates: Iterable[Candidate], turn: int, what: str) -> None:
        """Train each on this split, for so many times a lesson."""
        trials, own = self.splits[turn], self.seen[turn]
        new = [c for c in dict.fromkeys(candidates) if c not in own]
        what = f"{what}, split {turn + 1} of {len(self.splits)}"
        own |= trials.outcomes(new, what, self.search.finals * trials.bench.lesson.epochs)

    def taken(self, f: Found, company: Company | None, smaller: Sequence[Found]) -> Found:
        """The best within this budget of those that were tried on all splits."""
        outcomes = {
            c: Outcome.mean([own[c] for own in self.seen])
            for c in self.entered
            if all(c in own for own in self.seen) and self.planned.ram(c) <= f.budget
        }
        worth = None if company is None else {c: company.worth(c) for c in outcomes}
        best = best_of(outcomes, worth)
        won = {s.candidate: f"best of {kib(s.budget)}" for s in reversed(smaller)}
        names = {
            won.get(c, name): c
            for c, (budget, name) in self.entered.items()
            if c in outcomes
            and (budget == f.budget or name in (HEAD, BIASES) or c == best or c in won)
        }
        return replace(
            f,
            candidate=best,
            score=f.gains.score(best),
            ram=self.planned.ram(best),
            outcome=outcomes[best],
            rivals={n: Rival(c, self.planned.ram(c), outcomes[c]) for n, c in names.items()},
        )


def best_of(
    outcomes: Mapping[Candidate, Outcome], worth: Mapping[Candidate, float] | None
) -> Candidate:
    """Of those that beat the head alone: by what is believed of them, or as it came out."""
    over = dict(zip(outcomes, Measure.of(outcomes).values(outcomes), strict=True))
    worst = -math.inf if outcomes[Candidate()].diverged else 0.0
    fine = [c for c in outcomes if over[c] > worst and not outcomes[c].diverged]
    return max(fine, key=(over if worth is None else worth).__getitem__, default=Candidate())


@dataclass(frozen=True)
class Finder:
    """Finds the best sums within budgets; goes to worker processes."""

    costs: Costs
    planned: Planned
    solver: Solver
    questions: int | None = None

    def run(self, job: tuple[int, int, Contributions]) -> tuple[Candidate, Need]:
        _, budget, gains = job
        words = {} if self.questions is None else {"questions": self.questions}
        best = within(budget, gains, self.costs, self.planned, self.solver, **words).candidate
        return best, self.planned.known[best]
