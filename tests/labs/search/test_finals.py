"""Rounds of whole candidates: found within their budgets, tried where they should be, one taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import made_up
import small_search as small
import whet
from made_up import LAYERS, NAMES
from whet.labs.search import finals
from whet.labs.search.analysis import analyse
from whet.labs.search.belief import Belief
from whet.labs.search.engine import Engine
from whet.labs.search.finals import BELIEVED, BIASES, HEAD, SUM, Ring, best_of
from whet.labs.search.planner import Costs, Need
from whet.labs.search.solve import exact
from whet.labs.search.within import Found, Planned, within
from whet.scheme import Parameter
from whet.scheme.contribution import DIVERGED, RATIOS, Candidate, Outcome

PARAMETERS = [
    Parameter(name.replace("weight", kind), kind, layer, 8)
    for layer, name in enumerate(NAMES)
    for kind in ("weight", "bias")
]
BUDGETS = (4_000, 6_000)


class Planner:
    """A kilobyte for each weight, a few bytes for each bias, one for the rest."""

    def run(self, candidate: Candidate) -> Need:
        more = sum(int(1_000 * ratio) for _, ratio in candidate.weights) + 4 * candidate.biases
        return Need(1_000 + more, 1_000)


def costs() -> Costs:
    plan = Planner().run
    reaches = {i: LAYERS - i for i in range(LAYERS)}
    return Costs(
        {k: plan(Candidate(k)) for k in range(LAYERS + 1)},
        {(i, r): plan(Candidate(reaches[i], ((i, r),))) for i in reaches for r in RATIOS},
        reaches,
        dict.fromkeys(reaches, 0),
    )


class Known:
    """Trials of a split whose outcomes are made up."""

    parameters = PARAMETERS
    engine = Engine()
    bench = SimpleNamespace(lesson=SimpleNamespace(epochs=3))

    def __init__(self, judge: Callable[[Candidate], Outcome]) -> None:
        self.judge = judge
        self.given: dict[Candidate, Outcome] = {}
        self.asked: list[tuple[str, list[Candidate], int | None]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        pass

    def outcomes(
        self, candidates: Iterable[Candidate], what: str, epochs: int | None = None
    ) -> dict[Candidate, Outcome]:
        found = {c: self.judge(c) for c in candidates}
        self.given |= found
        self.asked.append((what, list(found), epochs))
        return found


def played(
    judge: Callable[[Candidate, np.random.Generator], Outcome], seed: int = 0, **words: Any
) -> tuple[list[Found], list[Known]]:
    """From an analysis of made-up outcomes to the last candidate."""
    belief = Belief.of(made_up.analysed(seed))
    planner: Any = Planner()
    random = np.random.default_rng(seed)
    splits: Any = [Known(lambda c: judge(c, random)) for _ in range(4)]
    own, planned = costs(), Planned(planner)
    sums = [within(budget, belief.expected, own, planned, exact) for budget in BUDGETS]
    search = whet.Search(seed=seed, **words)
    return finals.finals(sums, belief, own, planned, splits, search), splits


def as_alone(candidate: Candidate, random: np.random.Generator) -> Outcome:
    return made_up.outcome(candidate, random, 0.5)


def test_who_is_tried_where_and_for_how_long() -> None:
    found, splits = played(as_alone, rounds=2, draws=3)
    for turn, split in enumerate(splits):
        first, *middle, last = split.asked
        assert [what for what, _, _ in split.asked] == [
            f"finals, split {turn + 1} of 4",
            f"finals, round {1 + turn // 2}, split {turn + 1} of 4",
            f"finals, the last, split {turn + 1} of 4",
        ]
        assert Candidate() in first[1] and len(first[1]) == 2 + len(BUDGETS)
        assert {epochs for _, _, epochs in split.asked} == {6}, "twice a lesson"
        tried = [c for _, some, _ in split.asked for c in some]
        assert len(tried) == len(set(tried)), "each once"
        assert len(middle[0][1]) <= 3 * len(BUDGETS) and len(last[1]) <= 5 * len(BUDGETS)
    assert splits[0].asked[1][1] == splits[1].asked[1][1] != splits[2].asked[1][1]
    for f in found:
        assert f.ram <= f.budget and f.outcome is not None
        named = {part for name in f.rivals for part in name.split(", ")}
        assert {HEAD, SUM, BIASES} <= named and len(f.rivals) >= 5
        assert all(rival.ram <= f.budget for rival in f.rivals.values())
        assert f.candidate in {rival.candidate for rival in f.rivals.values()}
    assert any("best of " in name for name in found[1].rivals)
    assert [f.candidate for f in played(as_alone, rounds=2, draws=3)[0]] == [
        f.candidate for f in found
    ], "the same once more"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_rounds_find_what_single_gains_hide(seed: int) -> None:
    """In company layers named a are in each other's way: beside one of them b is worth more."""

    def together(candidate: Candidate, random: np.random.Generator | None) -> Outcome:
        kinds = [sum(r for i, r in candidate.weights if i % 3 == kind) for kind in range(3)]
        points = 0.02 * candidate.biases + 2.0 * min(kinds[0], 1.0) + 1.0 * kinds[1]
        off = 0.0 if random is None else random.normal(0, 0.5)
        return Outcome(50 + points + off, 1 - 0.03 * points, 1)

    def real(candidate: Candidate) -> float:
        return together(candidate, None).accuracy

    found, _ = played(together, seed)
    for f in found:
        (sums,) = (r.candidate for name, r in f.rivals.items() if SUM in name)
        assert real(f.candidate) > real(sums) + 1.0
        assert real(f.candidate) > 50 + 0.6 * (f.budget / 1000 - 1), "of what there is to gain"


def test_what_fails_on_one_split_is_not_taken() -> None:
    def fragile(candidate: Candidate, random: np.random.Generator) -> Outcome:
        gone = candidate.weights and random.random() < 0.25  # on one of its splits, as a rule
        return Outcome(0.0, DIVERGED, 1) if gone else as_alone(candidate, random)

    found, splits = played(fragile, rounds=1, draws=2)
    for f in found:
        assert f.outcome is not None and not f.outcome.diverged
        assert all(not split.given[f.candidate].diverged for split in splits)
    nothing, _ = played(lambda c, _: Outcome(50.0 - c.biases, 1.0 + c.biases, 1), rounds=1, draws=2)
    assert [f.candidate for f in nothing] == [Candidate()] * 2, "nothing beats the head alone"


def test_one_is_taken_by_what_is_believed_or_as_it_came_out() -> None:
    outcomes = {Candidate(k): Outcome(50.0 + k, 1.0, 1) for k in range(4)}
    assert best_of(outcomes, None) == Candidate(3)
    company: Any = SimpleNamespace(worth=lambda c: 1.0 if c.biases == 1 else -float(c.biases))
    assert best_of(outcomes, company) == Candidate(1)
    nothing: Any = SimpleNamespace(worth=lambda c: -float(c.biases))
    assert best_of(outcomes, nothing) == Candidate(), "that none is believed to beat"
    gone = {**outcomes, Candidate(3): Outcome(0.0, DIVERGED, 1)}
    assert best_of(gone, None) == Candidate(2)
    headless = {Candidate(): Outcome(0.0, DIVERGED, 1), Candidate(1): outcomes[Candidate(1)]}
    assert best_of(headless, None) == Candidate(1)


def test_without_a_belief_sums_and_biases_are_tried() -> None:
    belief = Belief.of(made_up.analysed())
    planner: Any = Planner()
    random = np.random.default_rng(0)
    splits: Any = [Known(lambda c: as_alone(c, random))]
    planned = Planned(planner)
    sums = [within(b, belief.expected, costs(), planned, exact) for b in BUDGETS]
    found = finals.finals(sums, None, costs(), planned, splits, whet.Search())
    assert len(splits[0].asked) == 1 and found[1].candidate == sums[1].candidate
    assert BELIEVED not in found[1].rivals


def test_candidates_that_train_the_same_are_one() -> None:
    parts = [Parameter("a.weight", "weight", 0, 8), Parameter("h.weight", "weight", 1, 8)]
    splits: Any = [SimpleNamespace(parameters=parts)]
    nobody: Any = None
    ring = Ring(nobody, nobody, nobody, splits, whet.Search())
    for name, candidate in (("one", Candidate(0)), ("same", Candidate(1)),
                            ("other", Candidate(1, ((0, 0.5),)))):  # fmt: skip
        ring.enter(4_000, name, candidate)
    names = [[name for _, name in some] for some in ring.entered.values()]
    assert names == [["one", "same"], ["other"]], "as a has no bias"


def test_candidates_are_the_same_whoever_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finals, "SECONDS", 0.0)  # however few it takes here
    belief = Belief.of(analyse(small.trials(tmp_path)))
    own, planned = small.costs(), Planned(small.planner())
    found = within(48_000, belief.expected, own, planned, exact)
    told: list[tuple[int, int]] = []

    def drawn(workers: int) -> list[Candidate]:
        trials = replace(
            small.trials(tmp_path, Engine(workers)), progress=lambda _, i, n: told.append((i, n))
        )
        ring = Ring(belief, own, planned, [trials], whet.Search())
        ring.enter(48_000, HEAD, Candidate())
        ring.seen[0][Candidate()] = Outcome(50.0, 1.0, 1)
        random, company = np.random.default_rng(0), ring.company()
        worths = [company.drawn(random) for _ in range(4)]
        return ring.look([(found, str(i), some) for i, some in enumerate(worths)], company)

    alone = drawn(1)
    assert drawn(2) == alone and len(set(alone)) >= 2, "and they differ"
    assert all(planned.ram(c) <= 48_000 for c in alone)
    assert told == [(i, 4) for i in range(1, 5)] * 2
