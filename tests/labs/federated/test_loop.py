"""Federated averaging in one process equals Flower's, weight for weight."""

from __future__ import annotations

import numpy as np
import pytest

import clients
import whet
from whet.errors import DataError
from whet.federated import Client, Local, average, federate, simulate
from whet.labs.federated.client import record
from whet.labs.federated.loop import size

flwr = pytest.importorskip("flwr.serverapp.strategy")


def replies(count: int, seed: int = 0) -> tuple[list[dict], list[int]]:
    random = np.random.default_rng(seed)
    arrays = [
        {
            "w": random.normal(size=(7, 3)).astype(np.float32),
            "b": random.normal(size=3).astype("f4"),
        }
        for _ in range(count)
    ]
    return arrays, random.integers(1, 1000, count).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_average_is_flowers_to_the_bit(count: int) -> None:
    from flwr.app import MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    for seed in range(20):
        arrays, examples = replies(count, seed)
        records = [
            RecordDict({"arrays": record(a), "metrics": MetricRecord({"num-examples": n})})
            for a, n in zip(arrays, examples, strict=True)
        ]
        expected = aggregate_arrayrecords(records, "num-examples")
        found = average(arrays, examples)
        for name in ("w", "b"):
            assert found[name].dtype == np.float32
            assert np.array_equal(found[name], expected[name].numpy())


@pytest.mark.parametrize("mu", [0.0, 0.2])
def test_rounds_are_those_of_flowers_strategy_to_the_bit(mu: float) -> None:
    """Flower's own FedAvg and FedProx, with clients that answer in this process."""
    program, parts = clients.program(), clients.clients()
    local = Local(epochs=2, mu=mu, seed=5)
    found = federate(program, parts, 3, local, test=clients.judges())
    name = "fedprox" if mu else "fedavg"
    expected = simulate(program, parts, 3, local, strategy=name, test=clients.judges(),
                        weighted_by_key="num-examples")  # fmt: skip
    assert found.arrays.keys() == expected.arrays.keys()
    assert all(np.array_equal(a, expected.arrays[n]) for n, a in found.arrays.items())
    for ours, theirs in zip(found.rounds, expected.rounds, strict=True):
        assert (ours.accuracy, ours.loss) == (theirs.accuracy, theirs.loss)
        assert (ours.sent, ours.received) == (theirs.sent, theirs.received)
        assert np.isclose(ours.train_loss, theirs.train_loss, equal_nan=True, rtol=1e-12)
    assert found.accuracy > 0.85 > 0.5 > found.rounds[0].accuracy


def test_one_client_alone_trains_as_without_a_federation() -> None:
    """A round is an epoch of its own training, with a new order each time."""
    client, (part,) = Client(clients.program()), clients.clients(1)
    arrays = client.give()
    for turn in (1, 2):
        arrays, _ = client.train(arrays, part, Local(), turn, 0)
    found = federate(clients.program(), [part], 2)
    assert all(np.array_equal(a, arrays[n]) for n, a in found.arrays.items())


def test_clients_alike_equal_one_with_all_samples() -> None:
    """One step of plain SGD on equal batches: the average of the steps is the step on all."""
    x, y = clients.samples()
    whole = whet.federated.ClientData(x[:8], y[:8], *clients.judges())
    halves = [whet.federated.ClientData(x[a:b], y[a:b], *clients.judges())
              for a, b in ((0, 4), (4, 8))]  # fmt: skip
    found = federate(clients.program(batch=4), halves, 1)
    expected = federate(clients.program(batch=8), [whole], 1)
    for name, array in found.arrays.items():
        assert np.allclose(array, expected.arrays[name], atol=1e-6)


def test_bytes_are_those_of_flowers_arrays() -> None:
    arrays = Client(clients.program()).give()
    assert size(arrays) == sum(len(a.data) for a in record(arrays).values())
    found = federate(clients.program(), clients.clients(), 2, fraction=0.5)
    assert found.rounds[-1].sent == found.rounds[-1].received == 2 * 2 * size(arrays)
    assert found.rounds[0].sent == 0


def test_a_client_that_fails_sends_nothing() -> None:
    program, (first, *others) = clients.program(), clients.clients()
    bad = whet.federated.ClientData(first.x * np.nan, first.y, *clients.judges())
    each = size(Client(program).give())
    found = simulate(program, [bad, *others], 2, weighted_by_key="num-examples")
    assert [r.sent for r in found.rounds] == [0, 4 * each, 8 * each]
    assert [r.received for r in found.rounds] == [0, 3 * each, 6 * each]


def test_only_what_trains_travels() -> None:
    program = clients.program(update="last")
    found = federate(program, clients.clients(), 1)
    assert found.arrays.keys() == {"2.weight", "2.bias"}


def test_integers_learn_together_and_keep_their_fractions() -> None:
    """Averages fall between integers. With a carry they go as with floats beside the integers;
    rounded to integers in every step and round, small steps are lost."""
    parts, test, local = clients.clients(), clients.judges(), Local(lr=0.003)
    found = {
        rounding: federate(clients.integer_program(rounding), parts, 4, local, test=test)
        for rounding in ("master", "nearest", "carry8")
    }

    def apart(rounding: str) -> float:
        exact = found["master"].arrays
        squares = (((a - exact[n]) ** 2).sum() for n, a in found[rounding].arrays.items())
        return float(np.sqrt(sum(squares)))

    assert apart("nearest") > 0.05 and apart("carry8") < 0.25 * apart("nearest")
    assert found["carry8"].rounds[-1].loss < found["nearest"].rounds[-1].loss


def test_what_cannot_be_run_is_refused() -> None:
    program, parts = clients.program(), clients.clients()
    with pytest.raises(DataError, match="there are no clients"):
        federate(program, [], 1)
    with pytest.raises(DataError, match="0 rounds are none"):
        federate(program, parts, 0)
    with pytest.raises(DataError, match="fraction=0"):
        federate(program, parts, 1, fraction=0.0)
