"""Whole candidates, tried in rounds: what came out of one tells what to try in the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...report import kib
from ...scheme.contribution import Candidate, Outcome
from .analysis import Trials
from .belief import Belief, Measure
from .company import Company, Worths, failures
from .engine import Engine
from .options import Search
from .planner import Costs, Need
from .solve import Solver
from .within import Found, Planned, Rival, within

HEAD, SUM, BIASES, BELIEVED = "head alone", "sum of gains", "biases alone", "believed best"
ASKED = 4  # of a solver for each draw, which need not be the very best
TURNS = 3  # at most, of following a bend
LAST = 4  # candidates for each budget that go on to all splits
SECONDS = 10.0  # of looking for candidates: worth other processes, which take time to start


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
    for f in found:
        ring.enter(f.budget, HEAD, Candidate())
        ring.enter(f.budget, SUM, f.candidate)
        ring.enter(f.budget, BIASES, best_biases(f, costs))
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


def best_biases(found: Found, costs: Costs) -> Candidate:
    fitting = [k for k, need in costs.prefixes.items() if need.ram <= found.budget]
    return Candidate(max(fitting, key=lambda k: found.gains.biases[k]))


@dataclass
class Ring:
    """Candidates, and how each did on the splits it was tried on."""

    belief: Belief | None
    costs: Costs
    planned: Planned
    splits: Sequence[Trials]
    search: Search
    entered: dict[Candidate, list[tuple[int, str]]] = field(
        default_factory=dict
    )  # for what, as what
    seen: list[dict[Candidate, Outcome]] = field(default_factory=list)
    twins: dict[str, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = [{} for _ in self.splits]

    def enter(self, budget: int, name: str, candidate: Candidate) -> Candidate:
        """The first of those that train the same, as layers may have no bias."""
        parameters = self.splits[0].parameters
        trains = str(candidate.scheme(parameters).resolve(parameters))
        first = self.twins.setdefault(trains, candidate)
        self.entered.setdefault(first, []).append((budget, name))
        return first

    def look(
        self, wanted: Sequence[tuple[Found, str, Worths]], company: Company
    ) -> list[Candidate]:
        """The best candidate within each budget by each of these worths."""
        finder = Finder(self.costs, self.planned, self.search.solver)
        starts = {f.budget: self.fitting(f.budget, company)[0] for f, _, _ in wanted}
        jobs = [(i, f.budget, starts[f.budget], worths) for i, (f, _, worths) in enumerate(wanted)]
        trials, best = self.splits[0], dict[int, Candidate]()
        seconds = sum(f.seconds for f, _, _ in wanted)
        engine = Engine() if seconds < SECONDS else trials.engine
        for (i, *_), (candidate, need) in engine.results(finder, jobs):
            self.planned.known[candidate] = need
            best[i] = candidate
            trials.progress("looking for candidates", len(best), len(jobs))
        return [self.enter(f.budget, name, best[i]) for i, (f, name, _) in enumerate(wanted)]

    def round(self, number: int, found: Sequence[Found]) -> None:
        """Draw some for each budget and try them on two splits, on others in every round."""
        company, wanted = self.company(), []
        for f in found:
            random = np.random.default_rng([self.search.seed, number, f.budget])
            wanted += [(f, f"draw {number}.{i}", company.drawn(random))
                       for i in range(1, self.search.draws + 1)]  # fmt: skip
        drawn = self.look(wanted, company)
        new = [c for c in drawn if not any(c in own for own in self.seen)]
        for turn in sorted({turn % len(self.splits) for turn in (2 * number - 2, 2 * number - 1)}):
            self.play(new, turn, f"finals, round {number}")

    def last(self, found: Sequence[Found]) -> None:
        """Those believed to be the best, one that nobody may have tried among them."""
        company = self.company()
        few = [c for f in found for c in self.fitting(f.budget, company)[:LAST]]
        untried = self.look([(f, BELIEVED, company.expected) for f in found], company)
        self.play_everywhere([*untried, *few], "finals, the last")

    def company(self) -> Company:
        assert self.belief is not None
        return Company.of(self.belief, self.seen)

    def fitting(self, budget: int, company: Company) -> list[Candidate]:
        """All that were tried, did not fail and keep the budget, the best first."""
        failed = {c for own in self.seen for c in failures(own)} - {Candidate()}
        tried = {c for own in self.seen for c in own if c not in failed}
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
        best = best_of(outcomes, company)
        won = {s.candidate: [f"best of {kib(s.budget)}"] for s in smaller}
        names = {c: self.names(c, f.budget) + won.get(c, []) for c in outcomes}
        if not names[best]:
            names[best] = [f"{name} of {kib(budget)}" for budget, name in self.entered[best][:1]]
        return replace(
            f,
            candidate=best,
            score=f.gains.score(best),
            ram=self.planned.ram(best),
            outcome=outcomes[best],
            rivals={
                ", ".join(own): Rival(c, self.planned.ram(c), outcomes[c])
                for c, own in names.items()
                if own
            },
        )

    def names(self, candidate: Candidate, budget: int) -> list[str]:
        """What a candidate was first entered as for a budget, if it was."""
        return [name for own, name in self.entered[candidate] if own == budget][:1]


def best_of(outcomes: Mapping[Candidate, Outcome], company: Company | None) -> Candidate:
    """Of those that beat the head alone: by what is believed of them, or as it came out."""
    head, failed = outcomes[Candidate()], failures(outcomes)
    if company is not None:
        worth = {c: company.worth(c) for c in outcomes}
    else:
        worth = dict(zip(outcomes, Measure.of(outcomes).values(outcomes), strict=True))
    worst = -math.inf if head.diverged else worth[Candidate()]
    fine = [c for c in outcomes if worth[c] > worst and c not in failed]
    return max(fine, key=worth.__getitem__, default=Candidate())


@dataclass(frozen=True)
class Finder:
    """Finds the best candidates within budgets; goes to worker processes."""

    costs: Costs
    planned: Planned
    solver: Solver

    def run(self, job: tuple[int, int, Candidate, Worths]) -> tuple[Candidate, Need]:
        """By what parts gain beside one that is good already.

        What is best by that may be so much more, or less, that parts gain something else there:
        then by what they gain half of the way.
        """
        _, budget, start, worths = job
        total, tried = worths.total(start), set[Candidate]()
        for _ in range(TURNS):
            gains = worths.gains(total)
            found = within(budget, gains, self.costs, self.planned, self.solver, ASKED).candidate
            tried.add(found)
            if worths.of(found) >= worths.of(start):
                break
            total = (total + worths.total(found)) / 2
        best = max(tried, key=lambda c: (worths.of(c), c))
        return best, self.planned.known[best]
