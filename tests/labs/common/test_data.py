"""Samples from what users give, and splits of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import small_search as small
from whet.errors import DataError
from whet.labs.common.data import Samples, gather, split


def test_data_come_as_arrays_or_in_batches() -> None:
    x, y = np.arange(12.0, dtype=np.float32).reshape(6, 2), np.arange(6)
    loader = [(torch.from_numpy(x[i : i + 2]), torch.from_numpy(y[i : i + 2])) for i in (0, 2, 4)]
    for given in ((x, y), loader, iter(loader), loader[::-1]):
        found = gather(given)
        order = np.argsort(found.labels)
        np.testing.assert_array_equal(found.inputs[0][order], x)
        np.testing.assert_array_equal(found.labels[order], y)
    np.testing.assert_array_equal(gather((x, y)).labels, y)
    assert gather(loader).checksum == gather(loader[::-1]).checksum, "in whatever order"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "the data are empty"),
        ((np.ones((0, 2)), np.ones(0)), "the data are empty"),
        (3, "not pairs"),
        ([(np.ones(2), np.ones(2), np.ones(2))], "not pairs"),
        ((np.ones((3, 2)), np.ones(2)), "differ in number"),
        ([(np.ones((2, 2)), np.ones(2)), (np.ones((2, 3)), np.ones(2))], "not pairs"),
        ((np.array([[np.nan]]), np.array([0])), "not finite"),
    ],
)
def test_invalid_data_are_refused(given: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        gather(given)


def test_held_out_samples_are_a_fair_share_of_each_class() -> None:
    samples = small.data(200)
    train, validation = split(samples, 0.25, small.BATCH, 0)
    assert len(train) == 150 and len(validation) == 50
    for c in range(small.CLASSES):
        assert abs((validation.labels == c).sum() - (samples.labels == c).sum() / 4) < 1
    again, _ = split(samples, 0.25, small.BATCH, 0)
    np.testing.assert_array_equal(again.labels, train.labels)


@pytest.mark.parametrize(("held_out", "splits"), [(0.25, 4), (0.5, 2), (0.3, 3)])
def test_no_sample_validates_twice(held_out: float, splits: int) -> None:
    every = Samples.of([np.arange(80.0).reshape(40, 2)], np.arange(40) % 4)
    pairs = [split(every, held_out, 4, 0, turn) for turn in range(splits)]
    validated = np.concatenate([samples.rows for _, samples in pairs])
    assert len(validated) == len(set(validated.tolist())) == splits * int(40 * held_out)
    for train, validation in pairs:
        assert sorted([*train.rows, *validation.rows]) == list(range(40))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError, match="too few to search by"):
        split(small.data(12), 0.25, small.BATCH, 0)
    with pytest.raises(DataError, match="held_out=1"):
        split(small.data(), 1, small.BATCH, 0)
