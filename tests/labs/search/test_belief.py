"""What is believed of candidates: exact where it can be computed otherwise, and of use."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from made_up import LAYERS, NAMES, analysed, truth
from whet.labs.search.belief import (
    POWER,
    Belief,
    Measure,
    features,
    learned,
    likeliest,
    likelihood,
    lowest,
    resemblance,
)
from whet.scheme.contribution import DIVERGED, RATIOS, Candidate, Contributions, Outcome

NAN = math.nan


# How good an outcome is ----------------------------------------------------------------------


def by_count(*outcomes: Outcome) -> dict[Candidate, Outcome]:
    return {Candidate(k): o for k, o in enumerate(outcomes)}


def test_a_loss_counts_the_points_that_come_with_it() -> None:
    fine = [Outcome(50 + 20 * x, 1 - x, 1) for x in (0.0, 0.1, 0.3)]
    measure = Measure.of(by_count(*fine))
    assert (measure.accuracy, measure.loss) == (pytest.approx(1 / 3), pytest.approx(40 / 3))
    for failed in ((0.0, DIVERGED), (1.0, 1.1), (50.0, 9.0), (55.0, 1e6)):
        assert Measure.of(by_count(*fine, Outcome(*failed, 1))).loss == pytest.approx(measure.loss)
    high = Outcome(50 + 20 * 0.8, 0.2, 1)
    assert Measure.of(by_count(*fine, high)).loss == pytest.approx(measure.loss), "16 points more"
    assert Measure.of(by_count(Outcome(50.0, 1.0, 1), Outcome(51.0, 2.0, 1))) == Measure(1.0, 0.0)
    assert Measure.of(by_count(Outcome(NAN, 1.0, 1), Outcome(NAN, 2.0, 1))) == Measure(0.0, 1.0)
    assert Measure.of(by_count(Outcome(50.0, 1.0, 1))) == Measure(1.0, 0.0)
    assert Measure.of(by_count(Outcome(0.0, DIVERGED, 1), *fine)).loss > 0


def test_values_are_over_the_head_and_failures_are_bounded() -> None:
    fine = [Outcome(p, 1.0, 1) for p in (50.0, 53.0, 49.0, 51.0)]
    failed = [Outcome(1.0, 9.0, 1), Outcome(0.0, DIVERGED, 1), Outcome(50.0, NAN, 1)]
    points = Measure(1.0, 0.0)
    assert points.values(by_count(*fine, *failed)).tolist() == [0, 3, -1, 1, -6, -6, -6]
    assert np.isfinite(points.values(by_count(failed[1], *fine))).all()
    assert points.values(by_count(failed[1])).tolist() == [0]
    lucky = by_count(*(Outcome(p, 1.0, 1) for p in (53.0, 52.0, 51.0, 50.0)))
    assert points.values(lucky).tolist() == [0, -1, -2, -3], "though the head is the best"
    no_classes = by_count(*(Outcome(NAN, 3.0 - k, 1) for k in range(3)))
    assert Measure(0.0, 1.0).values(no_classes).tolist() == [0, 1, 2]
    assert lowest(1.0, np.array([1.0, 2.0])) == -1.0


# What is learned -----------------------------------------------------------------------------


def test_learning_is_that_of_the_information_form() -> None:
    """The same mean and covariance from precisions, which add up."""
    random = np.random.default_rng(0)
    told, values = random.normal(size=(7, 4)), random.normal(size=7)
    root, other = random.normal(size=(4, 4)), random.normal(size=(7, 7))
    before, chance = root @ root.T + np.eye(4), other @ other.T + np.eye(7)
    mean = random.normal(size=4)
    after, covariance, _ = learned(mean, before, told, values, chance)
    sure = np.linalg.inv(before) + told.T @ np.linalg.inv(chance) @ told
    pulled = np.linalg.inv(before) @ mean + told.T @ np.linalg.inv(chance) @ values
    assert covariance == pytest.approx(np.linalg.inv(sure))
    assert after == pytest.approx(np.linalg.solve(sure, pulled))


def test_the_likelihood_is_that_of_a_normal_distribution() -> None:
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    values = np.array([0.3, -1.0])
    constant = math.log(2 * math.pi)
    assert likelihood(values, covariance) == pytest.approx(
        multivariate_normal.logpdf(values, cov=covariance) + constant
    )


def test_layers_of_the_same_name_go_together() -> None:
    reasons = resemblance(NAMES, LAYERS)
    name, near, layer = (reasons[k][LAYERS:, LAYERS:] for k in ("name", "near", "layer"))
    assert (name[0, 0], name[0, 1], name[0, 3]) == (1, 0, 1)
    assert 1 == near[0, 0] > near[0, 3] > near[0, 6] > 0 == near[0, 1]
    assert (layer == np.eye(LAYERS)).all()
    assert reasons["biases"].sum() == pytest.approx(1.0), "of all biases together"
    assert all(np.linalg.eigvalsh(every).min() > -1e-12 for every in reasons.values())
    assert (resemblance((), 2)["name"][2:, 2:] == 1).all(), "without names all are alike"
    told = features([Candidate(2, ((1, 0.5),))], np.array([1.0, 0.0, 1.0]))
    assert told.tolist() == [[0, 0, 1, 0, 0.5**POWER, 0]], "the one in the middle has no bias"


def test_the_likeliest_shares_explain_what_varies() -> None:
    random = np.random.default_rng(0)
    common = np.kron(np.eye(20), np.ones((5, 5)))  # twenty groups of five
    spreads = {"noise": np.eye(100), "name": common, "near": 0 * common, "layer": 0 * common,
               "biases": 0 * common}  # fmt: skip
    values = np.repeat(random.normal(0, 1, 20), 5) + random.normal(0, math.sqrt(0.1), 100)
    share = likeliest(values, spreads)
    assert share["name"] in (0.3, 1.0, 3.0) and share["noise"] == 0.1
    alone = likeliest(random.normal(0, 1, 100), spreads)
    assert alone["noise"] == 1.0 and alone["name"] <= 0.1


@pytest.mark.parametrize("seed", range(3))
def test_what_is_believed_is_nearer_to_the_truth_than_what_was_measured(seed: int) -> None:
    gains = analysed(seed)
    believed = Belief.of(gains).expected
    _, weights = truth()
    parts = [(i, r) for i in range(LAYERS) for r in RATIOS]
    real = np.array([weights[i] * r**POWER for i, r in parts])
    off = [np.sqrt(np.mean((np.array([g.weights[p] for p in parts]) - real) ** 2))
           for g in (gains, believed)]  # fmt: skip
    assert off[1] < 0.5 * off[0], "by far"
    assert believed.biases[-1] == pytest.approx(LAYERS * 0.1, abs=0.8)


def test_a_layer_that_was_not_tried_is_as_good_as_its_twins() -> None:
    whole = analysed()
    outcomes = {c: o for c, o in whole.outcomes.items() if not c.weights or c.weights[0][0] != 12}
    belief = Belief.of(Contributions.of(outcomes, "accuracy", NAMES))
    untried = float(belief.mean[LAYERS + 12])
    _, weights = truth()
    assert untried == pytest.approx(weights[12], abs=0.6)
    assert untried > belief.mean[LAYERS + 13] + 0.5, "than one of another name"


def test_without_proof_of_names_or_differences_nothing_breaks() -> None:
    flat = {Candidate(k): Outcome(100.0, 0.5, 1) for k in range(3)}
    belief = Belief.of(Contributions.of(flat, "accuracy", ()))
    assert belief.expected.score(Candidate(2)) == 0.0
    far = {Candidate(k): Outcome(NAN, 1e9 if k == 0 else 1.0 + 1e-8 * k, 1) for k in range(5)}
    assert np.isfinite(Belief.of(Contributions.of(far, "loss", ())).mean).all()
    alone = {Candidate(): Outcome(60.0, 1.0, 1)}
    lonely = Belief.of(Contributions.of(alone, "accuracy", ("head.weight",)))
    assert lonely.expected.biases == (0.0,)
