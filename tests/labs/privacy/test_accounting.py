"""Accounts of privacy against published figures and bounds in closed form."""

from __future__ import annotations

import math

import pytest

from whet.errors import DataError
from whet.labs.privacy.accounting import account, account_table, accounts

pytest.importorskip("dp_accounting")
ROUNDS = {"clients": 1000, "per_round": 100, "rounds": 100, "delta": 1e-5}


@pytest.mark.parametrize(
    "sampling,noise,expected",
    [("poisson", 1.0, 7.90), ("fixed", 2.0, 14.05), ("none", 1.0, 96.12), ("local", 2.0, 96.12)],
)
def test_known_figures(sampling: str, noise: float, expected: float) -> None:
    """Noise of one sensitivity, which is two clipping norms where a client is replaced."""
    found = account(noise=noise, sampling=sampling, **ROUNDS)
    assert found.epsilon == pytest.approx(expected, abs=0.01)


def test_fixed_sampling_with_noise_of_one_clipping_norm() -> None:
    """Six times what an account that takes replacing for removing would say."""
    assert account(noise=1.0, sampling="fixed", **ROUNDS).epsilon == pytest.approx(83.94, abs=0.01)


def test_without_sampling_it_is_the_bound_in_closed_form() -> None:
    """Mironov (2017): rounds / (2 noise^2) + sqrt(2 rounds log(1 / delta)) / noise, at most."""
    found = account(noise=4.0, rounds=10, sampling="none", delta=1e-6).epsilon
    bound = 10 / (2 * 16) + math.sqrt(2 * 10 * math.log(1e6)) / 4
    assert 0.8 * bound < found <= bound


def test_more_noise_fewer_rounds_and_fewer_clients_are_more_private() -> None:
    base = account(noise=1.0, **ROUNDS).epsilon
    assert account(noise=2.0, **ROUNDS).epsilon < base
    assert account(noise=1.0, **(ROUNDS | {"rounds": 50})).epsilon < base
    assert account(noise=1.0, **(ROUNDS | {"per_round": 50})).epsilon < base


def test_no_noise_is_no_privacy() -> None:
    found = account(noise=0.0, **ROUNDS)
    assert math.isinf(found.epsilon)
    assert "epsilon infinite" in str(found)


def test_an_epsilon_never_comes_alone() -> None:
    found = str(account(noise=1.0, sampling="poisson", **ROUNDS))
    expected = [
        "epsilon 7.90 at delta 1e-05",
        "100 rounds",
        "1 times the clipping norm",
        "100 of 1000",
    ]
    expected += ["independently", "one client more or less", "not who took part", "Renyi"]
    for words in expected:
        assert words in found, words
    table = account_table(accounts(noise=1.0, **ROUNDS))
    assert len(table.splitlines()) == 6
    assert "without replacement" in table and "| 83.94 | 1e-05 |" in table


@pytest.mark.parametrize(
    "words",
    [{"sampling": "some"}, {"noise": -1.0}, {"delta": 0.0}, {"per_round": 1001}, {"rounds": -1}],
)
def test_impossible_rounds_are_refused(words: dict[str, object]) -> None:
    with pytest.raises(DataError):
        account(**({"noise": 1.0} | ROUNDS | words))  # type: ignore[arg-type]
