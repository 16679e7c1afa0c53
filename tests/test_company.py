"""What is believed of whole candidates: single parts first, then what came out of company."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from made_up import LAYERS, analysed, outcome
from whet.scheme.contribution import DIVERGED, Candidate, Contributions, Outcome
from whet.selection.belief import Belief
from whet.selection.company import LEFT, Company, splits_apart

FIRST = list(range(0, LAYERS, 3))  # the layers named a
GROWING = [Candidate(LAYERS, tuple((i, 1.0) for i in FIRST[-n:])) for n in range(1, 8)]


def random_candidates(count: int, random: np.random.Generator) -> list[Candidate]:
    found = []
    for _ in range(count):
        layers = sorted(random.choice(LAYERS, 6, replace=False).tolist())
        ratios = random.choice([0.25, 0.5, 1.0], 6).tolist()
        found.append(Candidate(LAYERS, tuple(zip(layers, ratios, strict=True))))
    return found


def test_before_anything_was_tried_together_parts_are_worth_a_share() -> None:
    belief = Belief.of(analysed())
    company = Company.of(belief)
    alone = belief.expected
    for candidate in (Candidate(3), GROWING[2]):
        assert company.worth(candidate) == pytest.approx(LEFT * alone.score(candidate))
    gains = company.expected(Candidate())
    assert gains.weights[21, 0.5] == pytest.approx(LEFT * alone.weights[21, 0.5])


def test_draws_have_the_mean_and_the_covariance() -> None:
    company = Company.of(Belief.of(analysed()))
    random = np.random.default_rng(0)
    around = Candidate()
    drawn = [company.drawn(random, around) for _ in range(600)]
    assert drawn[0] != drawn[1] and drawn[0] == company.drawn(np.random.default_rng(0), around)
    for layer in (3, 4):
        place = LAYERS + layer
        slope = company.belief.mean[place]  # of what is left of gains, which is unknown too
        spread = company.covariance[place, place] + slope**2 * company.covariance[-2, -2]
        worth = np.array([g.weights[layer, 1.0] for g in drawn])
        assert worth.mean() == pytest.approx(company.mean[place], abs=0.2 * math.sqrt(spread))
        assert worth.std() == pytest.approx(math.sqrt(spread), rel=0.1)


def test_the_worth_of_what_was_not_tried_is_learned_from_what_was() -> None:
    """In company layers named b are worth what a were alone, and the other way round."""
    belief = Belief.of(analysed())
    random = np.random.default_rng(1)

    def swapped(candidate: Candidate) -> Candidate:
        other = {0: 1, 1: -1, 2: 0}
        return replace(
            candidate, weights=tuple((i + other[i % 3], r) for i, r in candidate.weights)
        )

    tried = [Candidate(), *random_candidates(60, random)]
    seen = [{c: outcome(swapped(c), random, 0.3) for c in tried} for _ in range(2)]
    company = Company.of(belief, seen)
    fresh = random_candidates(40, random)
    real = [outcome(swapped(c), None, 0.0).accuracy for c in fresh]
    before, after = ([one.worth(c) for c in fresh] for one in (Company.of(belief), company))
    assert np.corrcoef(before, real)[0, 1] < 0.2
    assert np.corrcoef(after, real)[0, 1] > 0.9


def test_a_lower_loss_is_not_taken_for_accuracy() -> None:
    """Alone both tell the same; in company c lowers the loss and nothing else."""
    belief = Belief.of(analysed())
    random = np.random.default_rng(2)

    def mixed(candidate: Candidate) -> Outcome:
        points = outcome(candidate, None, 0.0).accuracy + random.normal(0, 0.3)
        last = sum(r for i, r in candidate.weights if i % 3 == 2)
        return Outcome(points, 1 - 0.2 * last + random.normal(0, 0.003), 1)

    tried = [Candidate(), *random_candidates(60, random)]
    company = Company.of(belief, [{c: mixed(c) for c in tried} for _ in range(2)])
    of_a, of_c = (Candidate(LAYERS, ((i, 1.0), (i + 3, 1.0))) for i in (15, 17))
    assert company.worth(of_a) - company.worth(of_c) > 1.5


def test_too_much_at_once_is_believed_to_be_worse_once_it_was_seen() -> None:
    """Sums of gains tell which is best until one comes out worse than it should."""
    belief = Belief.of(analysed())
    tried = [Candidate(), *GROWING]
    as_sums = {c: outcome(c, None, 0.0) for c in tried}
    company = Company.of(belief, [as_sums, as_sums])
    assert max(tried, key=company.worth) == GROWING[-1]

    def bent(c: Candidate) -> Outcome:
        gain = as_sums[c].accuracy - 50
        return Outcome(50 + gain - gain**2 / 14, 1 - 0.03 * (gain - gain**2 / 14), 1)

    seen = {c: bent(c) for c in tried}
    best = max(seen, key=lambda c: seen[c].accuracy)
    company = Company.of(belief, [seen, seen])
    assert best not in (GROWING[0], GROWING[-1])
    assert abs(tried.index(max(tried, key=company.worth)) - tried.index(best)) <= 1
    few, many = (company.expected(around).weights[12, 1.0] for around in (GROWING[0], GROWING[-1]))
    assert few > 0 > many, "a further part helps few and harms many"


def test_a_candidate_may_be_better_than_its_parts() -> None:
    belief = Belief.of(analysed())
    random = np.random.default_rng(3)
    tried = [Candidate(), *random_candidates(12, random)]
    lucky = tried[5]

    def played(split: int) -> dict[Candidate, Outcome]:
        found = {c: outcome(c, random, 0.2) for c in tried}
        more = replace(found[lucky], accuracy=found[lucky].accuracy + 1.5)
        return {**found, lucky: more}

    company = Company.of(belief, [played(split) for split in range(4)])
    assert company.own[lucky] == max(company.own.values()) > 0.1
    assert Candidate(3) not in company.own, "of others nothing is known but their parts"


def test_failures_are_believed_to_fail() -> None:
    belief = Belief.of(analysed())
    good = Candidate(12, ((12, 1.0), (15, 1.0), (18, 1.0)))
    weak = Candidate(12, ((13, 1.0), (16, 1.0), (19, 1.0)))
    seen = [{c: outcome(c, None, 0.0) for c in (Candidate(), good, weak)} for _ in range(2)]
    worth = Company.of(belief, seen).worth(good)
    assert worth > Company.of(belief, seen).worth(weak) > 0
    for failed in (Outcome(0.0, DIVERGED, 1), Outcome(20.0, 4.0, 1)):
        company = Company.of(belief, [{**own, good: failed} for own in seen])
        assert company.worth(good) < worth


def test_noise_is_known_from_neighbours_and_from_splits() -> None:
    assert Belief.of(analysed(noise=0.5)).noise == pytest.approx(0.5 / 3 * math.sqrt(1.36), rel=0.5)
    random = np.random.default_rng(0)
    tried = [(Candidate(k), turn) for turn in range(4) for k in range(200)]
    values = np.array([7.0 * turn + c.biases + random.normal(0, 0.5) for c, turn in tried])
    assert splits_apart(tried, values) == pytest.approx(0.5, rel=0.15)
    values[::50] -= 1000.0
    assert splits_apart(tried, values) == pytest.approx(0.5, rel=0.15), "failures are no noise"
    assert splits_apart(tried[:200], values[:200]) == 0.0, "one split tells nothing"


def test_where_nothing_differs_nothing_breaks() -> None:
    flat = {Candidate(k): Outcome(100.0, 0.5, 1) for k in range(3)}
    belief = Belief.of(Contributions.of(flat, "accuracy", ()))
    assert Company.of(belief, [flat]).worth(Candidate(2)) == pytest.approx(0.0)
    alone = {Candidate(): Outcome(60.0, 1.0, 1)}
    lonely = Company.of(Belief.of(Contributions.of(alone, "accuracy", ("head.weight",))), [alone])
    assert lonely.worth(Candidate()) == 0.0
    assert lonely.drawn(np.random.default_rng(0), Candidate()).biases == (0.0,)
    no_classes = {Candidate(k): Outcome(math.nan, 3.0 - k, 1) for k in range(3)}
    by_loss = Belief.of(Contributions.of(no_classes, "loss", ()))
    assert Company.of(by_loss, [no_classes]).worth(Candidate(2)) > 0
