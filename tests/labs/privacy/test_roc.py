"""ROC curves against counting by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

from whet.errors import DataError
from whet.labs.privacy.roc import Roc, roc_svg, wilson


def test_a_small_roc_is_what_counting_gives() -> None:
    roc = Roc.of([4.0, 3.0, 1.0], [2.0, 1.0])
    assert roc.fpr.tolist() == [0, 0, 0, 0.5, 1]
    assert roc.tpr.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3, 1])
    # of six pairs, four are in order and one is equal
    assert roc.auc == pytest.approx((4 + 0.5) / 6)


def test_equal_scores_share_a_threshold() -> None:
    """Else the order of the samples would decide how good an attack is."""
    roc = Roc.of([1.0] * 5, [1.0] * 5)
    assert roc.auc == 0.5
    assert roc.tpr_at(0.5).value == 0


def test_the_auc_is_the_chance_of_the_right_order() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.5, 1, 400).round(1), rng.normal(0, 1, 300).round(1)
    pairs = members[:, None] - others[None]
    assert Roc.of(members, others).auc == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def test_the_error_of_the_auc_is_its_spread() -> None:
    rng = np.random.default_rng(1)
    rocs = [Roc.of(rng.normal(1, 1, 80), rng.normal(0, 1, 60)) for _ in range(400)]
    spread = np.std([roc.auc for roc in rocs])
    assert np.mean([roc.auc_error for roc in rocs]) == pytest.approx(spread, rel=0.15)


def test_the_rate_at_few_false_positives_counts_them() -> None:
    others = np.arange(1000.0)
    members = np.array([2000.0] * 30 + [998.5] * 20 + [-1.0] * 50)
    roc = Roc.of(members, others)
    strict, loose = roc.tpr_at(0.0005), roc.tpr_at(0.001)
    assert (strict.value, strict.false, strict.measurable) == (0.3, 0, False)
    assert (loose.value, loose.false, loose.measurable) == (0.5, 1, True)
    assert loose.needed == 10_000
    assert "no false positive allowed: 1000 non-members" in str(strict)


@pytest.mark.parametrize(
    "successes,trials,low,high",
    [(0, 100, 0.0, 0.0370), (5, 100, 0.0215, 0.1118), (9, 10, 0.5958, 0.9821)],
)
def test_intervals_are_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("members,others", [([], [1.0]), ([1.0], []), ([np.nan], [1.0])])
def test_scores_that_cannot_be_judged_are_refused(
    members: list[float], others: list[float]
) -> None:
    with pytest.raises(DataError):
        Roc.of(members, others)


def test_the_drawing_has_log_axes_and_stays_inside() -> None:
    rng = np.random.default_rng(0)
    svg = roc_svg({"loss <b>": Roc.of(rng.normal(1, 1, 500), rng.normal(0, 1, 2000))})
    for label in ("0.1 %", "1 %", "10 %", "100 %", "loss &lt;b&gt;", "AUC 0."):
        assert label in svg
    assert "<b>" not in svg
    (path,) = re.findall(r'd="M([^"]+)"', svg)
    points = [tuple(map(float, p.split())) for p in path.split("L")]
    assert all(46 <= x <= 366 and 22 <= y <= 342 for x, y in points)
    assert points[-1] == (366, 22)
