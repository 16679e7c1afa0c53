"""Defences do what they say, in numbers."""

from __future__ import annotations

import numpy as np
import pytest

from whet.errors import DataError
from whet.labs.privacy import defences as d

RANDOM = np.random.default_rng(0)
GRADIENTS = {
    "a": RANDOM.standard_normal((40, 50)).astype(np.float32),
    "b": (0.1 * RANDOM.standard_normal(1000)).astype(np.float32),
}


def test_the_root_mean_square_is_over_all_coordinates() -> None:
    assert d.rms({"a": np.array([3.0]), "b": np.array([[4.0, 0.0, 0.0]])}) == pytest.approx(2.5)
    assert d.norm({"a": np.array([3.0]), "b": np.array([[4.0]])}) == pytest.approx(5)


@pytest.mark.parametrize("noise", [d.gaussian, d.laplacian])
@pytest.mark.parametrize("absolute", [True, False])
def test_noise_has_the_deviation_it_states(noise: type, absolute: bool) -> None:
    found = noise(GRADIENTS, 0.5, absolute=absolute, seed=1)
    added = np.concatenate([(found.gradients[n] - g).ravel() for n, g in GRADIENTS.items()])
    size = d.rms(GRADIENTS)
    expected = 0.5 if absolute else 0.5 * size
    assert found.absolute == pytest.approx(expected)
    assert found.relative == pytest.approx(expected / size)
    assert added.std() == pytest.approx(expected, rel=0.05) and abs(added.mean()) < 0.05
    same = noise(GRADIENTS, 0.5, absolute=absolute, seed=1).gradients
    other = noise(GRADIENTS, 0.5, absolute=absolute, seed=2).gradients
    assert all(np.array_equal(same[n], found.gradients[n]) for n in GRADIENTS)
    assert not np.array_equal(other["a"], found.gradients["a"])


def test_laplacian_noise_has_the_longer_tails() -> None:
    tails = [
        np.mean(np.abs(noise({"a": np.zeros(20000)}, 1.0, absolute=True).gradients["a"]) > 3)
        for noise in (d.gaussian, d.laplacian)
    ]
    assert tails[0] == pytest.approx(0.0027, abs=0.002)
    assert tails[1] == pytest.approx(np.exp(-3 * 2**0.5), abs=0.004)


@pytest.mark.parametrize("percent", [1, 20, 50, 70, 90, 99])
def test_pruning_keeps_the_largest_of_each_tensor(percent: int) -> None:
    found = d.prune(GRADIENTS, percent / 100)
    for name, g in GRADIENTS.items():
        mask, sent = found.masks[name], found.gradients[name]
        assert mask.sum() == g.size - int(percent / 100 * g.size)
        assert np.abs(g[mask]).min() >= np.abs(g[~mask]).max()
        assert np.array_equal(sent[mask], g[mask]) and not sent[~mask].any()


def test_top_k_is_over_all_tensors_and_exact_among_equals() -> None:
    found = d.top_k(GRADIENTS, 0.1)
    assert sum(int(m.sum()) for m in found.masks.values()) == 300
    assert found.masks["b"].sum() < 10, "its gradients are ten times smaller"
    assert d.top_k({"a": np.ones(10)}, 0.3).masks["a"].tolist() == [True] * 3 + [False] * 7
    assert d.top_k({"a": np.ones(10)}, 1e-6).masks["a"].sum() == 1


def test_rounding() -> None:
    half = d.fp16({"a": np.array([1 + 2.0**-12, 1e9, 1e-9])}).gradients["a"]
    assert half.tolist() == [1.0, 65504.0, 0.0]
    found = d.int8(GRADIENTS).gradients["a"]
    step = np.abs(GRADIENTS["a"]).max() / 127
    assert np.abs(found - GRADIENTS["a"]).max() <= 0.5001 * step
    assert len(np.unique(np.rint(found / step))) <= 255
    assert d.int8({"a": np.zeros(3)}).gradients["a"].tolist() == [0, 0, 0]


def test_clipping_scales_everything_by_one_factor() -> None:
    found = d.clip(GRADIENTS, 2.0).gradients
    assert d.norm(found) == pytest.approx(2)
    ratios = np.concatenate([(found[n] / g).ravel() for n, g in GRADIENTS.items()])
    assert np.ptp(ratios) < 1e-5
    assert d.clip(GRADIENTS, 2.0).scaled and d.clip_and_noise(GRADIENTS, 2.0, 1.0).scaled
    assert not d.gaussian(GRADIENTS, 1.0).scaled
    within = d.clip(GRADIENTS, 1e6).gradients
    assert all(np.array_equal(within[n], g) for n, g in GRADIENTS.items())


def test_noise_after_clipping_is_a_multiple_of_the_limit() -> None:
    found = d.clip_and_noise({"a": np.full(4000, 100.0)}, 2.0, 1.5)
    assert found.absolute == pytest.approx(3.0)
    assert found.gradients["a"].std() == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: d.gaussian(GRADIENTS, -1), "noise of -1"),
        (lambda: d.laplacian(GRADIENTS, float("nan")), "noise of nan"),
        (lambda: d.prune(GRADIENTS, 1), "pruning 1"),
        (lambda: d.top_k(GRADIENTS, 0), "top 0"),
        (lambda: d.clip(GRADIENTS, 0), "at most 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(call: type, words: str) -> None:
    with pytest.raises(DataError, match=words):
        call()
