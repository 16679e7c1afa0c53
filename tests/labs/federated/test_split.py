"""Which client has which samples."""

from __future__ import annotations

import numpy as np
import pytest

from whet.errors import DataError
from whet.federated import by_group, dirichlet, iid

LABELS = np.random.default_rng(0).integers(0, 10, 2000)


def concentration(rows: list[np.ndarray]) -> float:
    """The share of a client's most frequent class, mean over clients; 0.1 if all are alike."""
    return float(np.mean([np.bincount(LABELS[r]).max() / len(r) for r in rows]))


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 100.0])
def test_every_sample_goes_to_one_client(alpha: float) -> None:
    for seed in range(5):
        rows = dirichlet(LABELS, 10, alpha, seed, least=20)
        assert len(rows) == 10 and min(map(len, rows)) >= 20
        assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(len(LABELS)))


def test_a_small_alpha_gives_few_classes_and_a_large_one_all() -> None:
    def mean(alpha: float) -> float:
        return float(np.mean([concentration(dirichlet(LABELS, 10, alpha, s)) for s in range(5)]))

    found = [mean(alpha) for alpha in (0.05, 0.5, 5.0, 1000.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.55 and found[-1] < 0.15


def test_shares_are_those_of_the_distribution() -> None:
    """The variance of a share among n clients is (n - 1) / (n^2 (n alpha + 1))."""
    clients, alpha = 4, 0.5
    labels = np.zeros(1000, int)
    shares = [len(r) / 1000 for seed in range(400) for r in dirichlet(labels, clients, alpha, seed)]
    expected = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert abs(np.mean(shares) - 1 / clients) < 1e-3
    assert abs(np.var(shares) / expected - 1) < 0.1


def test_the_same_seed_gives_the_same_split() -> None:
    for make in (lambda s: dirichlet(LABELS, 7, 0.3, s), lambda s: iid(2000, 7, s)):
        first, second, other = make(3), make(3), make(4)
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_alike_clients_have_equally_many() -> None:
    rows = iid(103, 10)
    assert sorted(map(len, rows)) == [10] * 7 + [11] * 3
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(103))


def test_groups_are_clients() -> None:
    rows = by_group(np.array(["b", "a", "b", "c", "a"]))
    assert [r.tolist() for r in rows] == [[1, 4], [0, 2], [3]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dirichlet(LABELS, 10, 0.0), "alpha=0.0 is not a positive number"),
        (lambda: dirichlet(LABELS, 10, float("nan")), "alpha=nan is not a positive number"),
        (lambda: dirichlet(LABELS * 0.5, 10, 1.0), "name no classes"),
        (lambda: dirichlet(LABELS, 10, 1.0, least=201), "too few for 10 clients"),
        (lambda: iid(3, 4), "3 samples are too few for 4 clients"),
        (lambda: iid(3, 0), "0 clients are none"),
    ],
)
def test_what_cannot_be_split_is_refused(call, words: str) -> None:
    with pytest.raises(DataError) as error:
        call()
    assert words in str(error.value)
