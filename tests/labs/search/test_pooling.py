"""Pooled gains: close to the truth, and better than gains as measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, spearmanr

from made_up import LAYERS, NAMES, analysed, truth
from whet.labs.common.validate import DIVERGED, Outcome
from whet.labs.search.candidate import RATIOS, Candidate
from whet.labs.search.pooling import POWER, START, Pooled, Score, failed, fitted, kernels

NAN = math.nan
PARTS = [(i, r) for i in range(LAYERS) for r in RATIOS]
REAL = np.array([truth()[1][i] * r**POWER for i, r in PARTS])


def by_count(*outcomes: Outcome) -> dict[Candidate, Outcome]:
    return {Candidate(k): o for k, o in enumerate(outcomes)}


def test_the_score_converts_loss_to_points() -> None:
    fine = [Outcome(50 + 20 * x, 1 - x, 1) for x in (0.0, 0.1, 0.3)]
    score = Score.of(by_count(*fine))
    assert (score.accuracy, score.loss) == (0.5, pytest.approx(10.0))
    assert score(fine[2]) - score(fine[0]) == pytest.approx(6.0)
    for failure in ((0.0, DIVERGED), (1.0, 1.1), (50.0, 9.0)):
        assert Score.of(by_count(*fine, Outcome(*failure, 1))).loss == pytest.approx(10.0)
    assert Score.of(by_count(Outcome(50.0, 1.0, 1), Outcome(51.0, 2.0, 1))) == Score(1.0, 0.0)
    assert Score.of(by_count(Outcome(NAN, 1.0, 1), Outcome(NAN, 2.0, 1))) == Score(0.0, 1.0)


def test_a_failure_is_far_worse_than_the_head_whatever_the_sign_of_the_loss() -> None:
    for head, fine, wrong in ((1.0, 1.9, 2.1), (-1.0, -0.1, 0.1), (-1.0, -1.5, DIVERGED)):
        known = Outcome(NAN, head, 1)
        assert not failed(known, known) and not failed(Outcome(NAN, fine, 1), known)
        assert failed(Outcome(NAN, wrong, 1), known)


def test_gains_are_over_the_head_and_failures_are_bounded() -> None:
    fine = [Outcome(p, 1.0, 1) for p in (50.0, 53.0, 49.0, 51.0)]
    failures = [Outcome(1.0, 9.0, 1), Outcome(0.0, DIVERGED, 1)]
    points = Score(1.0, 0.0)
    assert points.gains(by_count(*fine, *failures)).tolist() == [0, 3, -1, 1, -6, -6]
    assert np.isfinite(points.gains(by_count(failures[1], *fine))).all()
    no_classes = by_count(*(Outcome(NAN, 3.0 - k, 1) for k in range(3)))
    assert Score(0.0, 1.0).gains(no_classes).tolist() == [0, 1, 2]


def test_layers_of_one_name_are_alike() -> None:
    prior = kernels(NAMES, LAYERS)
    alike = prior["alike"][LAYERS:, LAYERS:]
    assert 1 == alike[0, 0] > alike[0, 3] > alike[0, 6] > 0 == alike[0, 1]
    assert prior["biases"].sum() == pytest.approx(1.0), "of all biases together"
    assert all(np.linalg.eigvalsh(every).min() > -1e-12 for every in prior.values())


def test_the_fitted_variances_are_the_likeliest_of_the_grid() -> None:
    random = np.random.default_rng(0)
    groups = np.kron(np.eye(20), np.ones((5, 5)))
    spreads = {name: 0 * groups for name in START} | {"noise": np.eye(100), "alike": groups}
    y = np.repeat(random.normal(0, 1, 20), 5) + random.normal(0, math.sqrt(0.1), 100)
    shares = fitted(y, spreads)
    assert shares["alike"] in (0.3, 1.0, 3.0) and shares["noise"] == 0.1

    def likelihood(alike: float, noise: float) -> float:
        total = alike * groups + noise * np.eye(100)
        return float(multivariate_normal.logpdf(y, cov=total))

    best = likelihood(shares["alike"], shares["noise"])
    for alike in (0.1, 0.3, 1.0, 3.0):
        assert likelihood(alike, 0.1) <= best + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_pooling_recovers_the_gains_better_than_measuring(seed: int) -> None:
    measured = analysed(seed)
    pooled = Pooled.of(measured).gains
    guesses = [np.array([g.weights[part] for part in PARTS]) for g in (measured, pooled)]
    errors = [float(np.sqrt(np.mean((guess - REAL) ** 2))) for guess in guesses]
    ranks = [float(spearmanr(guess, REAL).statistic) for guess in guesses]
    assert errors[1] < 0.5 * errors[0] and errors[1] < 0.3
    assert ranks[1] > ranks[0] + 0.15 and ranks[1] > 0.6
    assert pooled.biases[-1] == pytest.approx(truth()[0].sum(), abs=1.0)


def test_without_noise_pooling_changes_little() -> None:
    pooled = Pooled.of(analysed(0, noise=0.0)).gains
    guess = np.array([pooled.weights[part] for part in PARTS])
    assert np.abs(guess - REAL).max() < 0.1


def test_draws_spread_around_the_mean_as_the_posterior_says() -> None:
    pooled, random = Pooled.of(analysed(0)), np.random.default_rng(0)
    draws = [pooled.sample(random) for _ in range(300)]
    part = (LAYERS - 1, 1.0)
    values = np.array([draw.weights[part] for draw in draws])
    spread = math.sqrt(pooled.covariance[2 * LAYERS - 1, 2 * LAYERS - 1])
    assert values.mean() == pytest.approx(pooled.gains.weights[part], abs=4 * spread / 300**0.5)
    assert values.std() == pytest.approx(spread, rel=0.15)
