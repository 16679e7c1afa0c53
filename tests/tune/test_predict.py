"""The predicted time of a step: what is counted, at what `whet tune` measured."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import whet
from whet.passes.machine import Machine
from whet.tune import predict

MACHINE = Machine(macs=10.0, near=0.5, far=2.0, cache=10_000)


def test_a_prediction_is_the_sum_of_what_is_counted() -> None:
    x = torch.randn(8, 64)
    program = whet.compile(nn.Linear(64, 32), (x,), loss="mse", labels=torch.zeros(8, 32))
    found = predict(program, MACHINE, "predict")
    assert list(found.by_operator) == ["linear"]
    cost = found.by_operator["linear"]
    assert (cost.calls, cost.macs) == (1, 8 * 64 * 32)
    assert cost.products == pytest.approx(1e-9 * 8 * 64 * 32 / 10)
    floats = 8 * 64 + 64 * 32 + 32 + 8 * 32  # x, weight, bias, y
    assert cost.moving == pytest.approx(1e-9 * 0.5 * floats / 2) and not cost.unpacking
    assert found.seconds == pytest.approx(cost.products + cost.moving)
    slow = predict(program, Machine(macs=10.0, near=0.5, far=2.0, cache=100), "predict")
    assert slow.total("moving") == pytest.approx(4 * cost.moving), "it does not fit in the cache"
    assert predict(program, MACHINE).macs == 2 * 8 * 64 * 32, "forward, and the weight's gradient"


def test_stored_weights_are_unpacked_and_look_ups_read_what_they_write() -> None:
    model = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 64), nn.Flatten(), nn.Linear(256, 4))
    ids = torch.zeros(1, 4, dtype=torch.int64)
    program = whet.compile(model, (ids,), update="last", frozen="q8_0")
    cost = predict(program, MACHINE, "predict").by_operator
    assert cost["linear_stored"].unpacking == pytest.approx(1e-9 * 0.5 * 64 * 64)
    assert cost["take_stored"].moving == pytest.approx(1e-9 * 0.5 * 4 * 64)
