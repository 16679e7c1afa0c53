"""Training behind defences against training without."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import whet
from tiny import mlp, vectors
from whet.errors import DataError
from whet.labs.privacy.choices import defence
from whet.labs.privacy.costs import train
from whet.runtime import trained


def data(count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    x, y = next(vectors(count))
    return x.numpy(), y.numpy()


def compiled(batch: int = 4) -> whet.Program:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return whet.compile(model, (torch.zeros(batch, 5),), optimizer=optimizer)


def test_no_defence_changes_nothing_and_fp16_little() -> None:
    program = compiled()
    runs = {}
    for name in ("", "none", "fp16", "prune:0.9"):
        trainer = program.load()
        used = train(trainer, data(), 20, defence(name) if name else None)
        assert used.tolist() == list(range(24)), "every epoch has every sample"
        runs[name] = np.concatenate([a.ravel() for a in trained(trainer).values()])
    np.testing.assert_allclose(runs["none"], runs[""], rtol=1e-4, atol=1e-6)
    distance = {name: np.linalg.norm(runs[name] - runs[""]) for name in runs}
    assert distance["none"] < distance["fp16"] < 0.01 * distance["prune:0.9"]


def test_only_rows_that_were_used_are_members() -> None:
    used = train(compiled().load(), data(), 3)
    assert len(used) == 12 and len(set(used.tolist())) == 12


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError, match="3 samples are fewer than a batch of 4"):
        train(compiled().load(), data(3), 1)
