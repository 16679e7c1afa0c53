"""Flower's simulation on Ray gives what the loop in one process gives."""

from __future__ import annotations

import numpy as np
import pytest

import clients
from whet.federated import Local, federate, simulate


@pytest.mark.slow
def test_flowers_simulation_is_the_loop_weight_for_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two clients, the order in which they answer does not change the sum."""
    pytest.importorskip("ray")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    program, parts = clients.program(), clients.clients(2)
    local = Local(epochs=2, seed=3)
    found = simulate(program, parts, 3, local, engine="flower", test=clients.judges())
    expected = federate(program, parts, 3, local, test=clients.judges())
    assert found.arrays.keys() == expected.arrays.keys()
    assert all(np.array_equal(a, expected.arrays[n]) for n, a in found.arrays.items())
    assert [r.accuracy for r in found.rounds] == [r.accuracy for r in expected.rounds]
    assert [r.sent for r in found.rounds] == [r.sent for r in expected.rounds]
