"""Property inference on updates made of known parts."""

from __future__ import annotations

import numpy as np
import pytest

from whet.errors import DataError
from whet.labs.privacy.properties import PropertyAttack, logistic


def updates(count: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise in 1000 coordinates; a property shifts all of them along one direction."""
    rng = np.random.default_rng(seed)
    direction = np.random.default_rng(99).normal(size=1000)
    has = rng.random(count) < 0.5
    noise = rng.normal(size=(count, 1000))
    return noise + shift * has[:, None] * direction / np.linalg.norm(direction), has


def test_a_property_that_moves_updates_is_found_on_others() -> None:
    attack = PropertyAttack.fit(*updates(300, 12.0, seed=0))
    assert attack.judge(*updates(300, 12.0, seed=1)).auc > 0.9


def test_no_property_is_found_where_there_is_none() -> None:
    """Though the attacker's own updates are told apart: they are fewer than the coordinates."""
    own = updates(100, 0.0, seed=0)
    attack = PropertyAttack.fit(*own)
    assert attack.judge(*own).auc > 0.95
    held_out = attack.judge(*updates(600, 0.0, seed=1))
    assert abs(held_out.auc - 0.5) < 3 * held_out.auc_error


def test_logistic_regression_is_at_its_minimum() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    target = rows @ [2.0, -1.0, 0.0] + 0.5 + rng.logistic(size=200) > 0
    weights = logistic(rows, target, penalty=0.3)
    chance = 1 / (1 + np.exp(-(rows @ weights[:-1] + weights[-1])))
    slope = rows.T @ (chance - target) + 0.3 * weights[:-1]
    np.testing.assert_allclose(slope, 0, atol=1e-6)
    np.testing.assert_allclose((chance - target).sum(), 0, atol=1e-4)
    np.testing.assert_allclose(weights, [2, -1, 0, 0.5], atol=0.6)


def test_dicts_of_arrays_are_updates_too() -> None:
    rows, has = updates(60, 12.0, seed=0)
    as_dicts = [{"a": row[:600].reshape(20, 30), "b": row[600:]} for row in rows]
    plain, same = PropertyAttack.fit(rows, has), PropertyAttack.fit(as_dicts, has)
    np.testing.assert_allclose(plain.scores(rows), same.scores(as_dicts))


def test_what_cannot_be_learned_from_is_refused() -> None:
    rows, has = updates(20, 1.0, seed=0)
    with pytest.raises(DataError, match="with and without"):
        PropertyAttack.fit(rows, np.ones(20))
    with pytest.raises(DataError, match="20 updates and 19"):
        PropertyAttack.fit(rows, has[:19])
    with pytest.raises(DataError, match="another number"):
        PropertyAttack.fit(rows[:, :50], has).scores(rows)
