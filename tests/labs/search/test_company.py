"""What is believed of whole candidates: single parts first, then what came out of company."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from made_up import LAYERS, analysed, outcome
from whet.labs.search.belief import POWER, Belief
from whet.labs.search.company import LEFT, UNSURE, Company, failures, noise_of
from whet.scheme.contribution import DIVERGED, Candidate, Contributions, Outcome

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
    gains = company.expected.gains(0.0)
    assert gains.weights[21, 0.5] == pytest.approx(LEFT * alone.weights[21, 0.5])


def test_draws_have_the_mean_and_the_covariance() -> None:
    random = np.random.default_rng(0)
    tried = [Candidate(), *random_candidates(20, random)]
    seen = [{c: outcome(c, random, 0.5) for c in tried} for _ in range(2)]
    company = Company.of(Belief.of(analysed()), seen)
    drawn = np.array([company.drawn(random).parts for _ in range(2000)])
    again = [company.drawn(np.random.default_rng(0)).parts for _ in range(2)]
    assert (again[0] == again[1]).all()
    deviation = np.sqrt(np.diag(company.covariance))
    assert drawn.mean(0) == pytest.approx(company.expected.parts, abs=0.1 * deviation.max())
    for place in (LAYERS + 3, LAYERS + 4, -2, -1):
        assert drawn[:, place].std() == pytest.approx(deviation[place], rel=0.1)
    one, other = LAYERS + 18, LAYERS + 21  # of one name, and near
    assert np.cov(drawn[:, one], drawn[:, other])[0, 1] == pytest.approx(
        company.covariance[one, other], abs=0.1 * deviation[one] * deviation[other]
    )


def test_gains_are_the_slope_of_worths() -> None:
    """A little more of a part changes the worth by that little of its gain."""
    belief = Belief.of(analysed())
    seen = {c: outcome(c, None, 0.0) for c in (Candidate(), *GROWING)}
    worths = Company.of(belief, [seen, seen]).drawn(np.random.default_rng(0))
    before, after = (Candidate(LAYERS, ((12, r), (15, 1.0))) for r in (0.5, 0.5 + 1e-6))
    step = (0.5 + 1e-6) ** POWER - 0.5**POWER
    gain = worths.gains(worths.total(before)).weights[12, 1.0]
    assert (worths.of(after) - worths.of(before)) / step == pytest.approx(gain, rel=1e-3)


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
    worths = company.expected
    few, many = (
        worths.gains(worths.total(around)).weights[12, 1.0] for around in (GROWING[0], GROWING[-1])
    )
    assert few > 0 > many, "a further part helps few and harms many"


def test_a_candidate_may_be_better_than_its_parts() -> None:
    belief = Belief.of(analysed())
    random = np.random.default_rng(3)
    tried = [Candidate(), *random_candidates(12, random)]
    lucky = tried[5]

    def played() -> dict[Candidate, Outcome]:
        found = {c: outcome(c, random, 0.2) for c in tried}
        more = replace(found[lucky], accuracy=found[lucky].accuracy + 1.5)
        return {**found, lucky: more}

    company = Company.of(belief, [played() for _ in range(4)])
    assert company.own[lucky] == max(company.own.values()) > 0.1
    assert company.worth(Candidate()) == 0.0, "all are over the head alone"
    assert Candidate(3) not in company.own, "of others nothing is known but their parts"


def test_what_fails_wherever_it_is_tried_is_believed_to_fail() -> None:
    belief = Belief.of(analysed())
    random = np.random.default_rng(5)
    tried = [Candidate(), *random_candidates(20, random), *GROWING]
    seen = [{c: outcome(c, random, 0.3) for c in tried} for _ in range(4)]
    gone = {c: Outcome(0.0, DIVERGED, 1) for c in GROWING[4:]}
    fine, broken = (Company.of(belief, some) for some in (seen, [{**own, **gone} for own in seen]))
    assert max(tried, key=fine.worth) == GROWING[-1]
    assert max(tried, key=broken.worth) not in gone
    assert all(broken.worth(c) < fine.worth(c) - 1.0 for c in gone)


def test_one_failure_does_not_ruin_the_name_of_its_parts() -> None:
    belief = Belief.of(analysed())
    random = np.random.default_rng(4)
    tried = [Candidate(), *random_candidates(20, random), GROWING[5]]
    seen = [{c: outcome(c, random, 0.3) for c in tried} for _ in range(2)]
    fine = Company.of(belief, seen)
    broken = Company.of(belief, [{**seen[0], GROWING[5]: Outcome(0.0, DIVERGED, 1)}, seen[1]])
    for candidate in (GROWING[1], GROWING[3]):
        assert broken.worth(candidate) == pytest.approx(fine.worth(candidate), rel=0.15)
    assert failures(seen[0]) == set()
    given_up = {**seen[0], GROWING[5]: Outcome(35.0, 1.0, 1)}
    assert failures(given_up) == {GROWING[5]}


def rounds(
    noise: float, better: float, random: np.random.Generator
) -> list[dict[Candidate, float]]:
    """Points on four splits: some candidates on the first two, later and better ones on others."""
    splits: list[dict[Candidate, float]] = [{Candidate(): 0.0} for _ in range(4)]
    for k in range(1, 401):
        for turn in (0, 1) if k <= 200 else (2, 3):
            level = 7.0 * turn + k / 100 + (better if k > 200 else 0.0)
            splits[turn][Candidate(k)] = level + random.normal(0, noise)
    return splits


@pytest.mark.parametrize("better", [0.0, 3.0])
def test_noise_is_known_from_splits_whoever_was_tried_on_them(better: float) -> None:
    belief = Belief.of(analysed(noise=0.5))
    assert belief.noise == pytest.approx(0.5 / 3 * math.sqrt(1.36), rel=0.5)
    points = rounds(0.5, better, np.random.default_rng(0))
    seen: list[dict[Candidate, Outcome]] = [{c: Outcome(p, 1.0, 1) for c, p in own.items()}
                                            for own in points]  # fmt: skip

    def noise() -> float:
        return noise_of(belief, seen, [np.array([*own.values()]) for own in points])

    assert noise() == pytest.approx(0.5, rel=0.15)
    for own in points:
        own |= {c: -1000.0 for c in list(own)[5::50]}
    points[0] |= {c: -2000.0 for c in list(points[0])[5::50]}
    assert noise() == pytest.approx(0.5, rel=0.15), "failures are no noise"
    one = noise_of(belief, seen[:1], [np.array([*points[0].values()])])
    assert one == UNSURE * belief.noise, "one split tells nothing"


@pytest.mark.parametrize("seed", range(8))
def test_accuracies_of_few_samples_may_be_equal(seed: int) -> None:
    """So equal that there seems to be no noise, or as little as their rounding."""
    belief = Belief.of(analysed())
    random = np.random.default_rng(seed)
    tried = [Candidate(), *random_candidates(10, random)]

    def coarse(candidate: Candidate, level: float) -> Outcome:
        right = round(0.70 * (outcome(candidate, None, 0.0).accuracy + level))
        return Outcome(round(100 * right / 70, 4), 1.0, 1)

    seen = [{c: coarse(c, level) for c in tried} for level in (0.0, 3.2, -5.1, 1.7)]
    company = Company.of(belief, seen)
    assert np.isfinite(company.drawn(random).parts).all()
    assert max(tried, key=company.worth) != Candidate()


def test_where_nothing_differs_nothing_breaks() -> None:
    flat = {Candidate(k): Outcome(100.0, 0.5, 1) for k in range(3)}
    belief = Belief.of(Contributions.of(flat, "accuracy", ()))
    assert Company.of(belief, [flat]).worth(Candidate(2)) == pytest.approx(0.0)
    alone = {Candidate(): Outcome(60.0, 1.0, 1)}
    lonely = Company.of(Belief.of(Contributions.of(alone, "accuracy", ("head.weight",))), [alone])
    assert lonely.worth(Candidate()) == 0.0
    assert lonely.drawn(np.random.default_rng(0)).gains(0.0).biases == (0.0,)
    no_classes = {Candidate(k): Outcome(math.nan, 3.0 - k, 1) for k in range(3)}
    by_loss = Belief.of(Contributions.of(no_classes, "loss", ()))
    assert Company.of(by_loss, [no_classes]).worth(Candidate(2)) > 0
