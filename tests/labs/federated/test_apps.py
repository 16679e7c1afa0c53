"""A program as a client of Flower, and the server that it answers to."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clients
from whet.errors import DataError, WhetError
from whet.federated import Client, Local, client_app, server_app, simulate
from whet.labs.federated.client import received, record
from whet.labs.federated.server import first, start

pytest.importorskip("flwr")
from flwr.app import Context, Message, MetricRecord, RecordDict

from whet.labs.federated.grid import LocalGrid
from whet.labs.federated.strategies import strategy_of


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)


def grid(count: int = 4, **words: Any) -> LocalGrid:
    parts = clients.clients(count)
    return LocalGrid(client_app(clients.program(), lambda k, _: parts[k], **words), count)


def asked(nodes: LocalGrid, kind: str, arrays: dict, **config: Any) -> list[Message]:
    from flwr.app import ConfigRecord

    content = RecordDict({"arrays": record(arrays), "config": ConfigRecord(config)})
    messages = [Message(content, node, kind) for node in nodes.get_node_ids()]
    return list(nodes.send_and_receive(messages))


def test_a_client_answers_with_what_its_program_became() -> None:
    client, parts = Client(clients.program()), clients.clients()
    start = client.give()
    found = asked(grid(), "train", start, **{"server-round": 2, "lr": 0.2, "local-epochs": 2})
    for k, reply in enumerate(found):
        expected, loss = client.train(start, parts[k], Local(epochs=2, lr=0.2), 2, k)
        arrays = received(reply)
        assert all(np.array_equal(arrays[n], a) for n, a in expected.items())
        metrics = reply.content.metric_records["metrics"]
        assert metrics["num-examples"] == len(parts[k].y) and metrics["train_loss"] == loss


def test_a_client_judges_by_its_own_samples() -> None:
    client, parts = Client(clients.program()), clients.clients()
    start = client.give()
    for k, reply in enumerate(asked(grid(), "evaluate", start)):
        score = client.judge(start, parts[k].x_test, parts[k].y_test)
        metrics = dict(reply.content.metric_records["metrics"])
        expected = {"num-examples": score.examples, "accuracy": score.accuracy, "loss": score.loss}
        assert metrics == expected and not reply.content.array_records


def test_a_saved_program_answers_as_the_compiled_one(tmp_path: Path) -> None:
    path = clients.program().save(tmp_path / "net.whet")
    parts, start = clients.clients(), Client(clients.program()).give()
    saved = LocalGrid(client_app(path, lambda k, _: parts[k]), 4)
    for ours, theirs in zip(
        asked(saved, "train", start), asked(grid(), "train", start), strict=True
    ):
        other = received(theirs)
        assert all(np.array_equal(a, other[n]) for n, a in received(ours).items())
    assert first(path).keys() == start.keys()
    assert all(np.array_equal(a, start[n]) for n, a in first(path).items())


CLIENT = """
import sys
sys.modules["torch"] = None  # import torch fails
import numpy as np
import whet.federated as federated
from whet.labs.federated.grid import LocalGrid
from whet.labs.federated.client import record
from flwr.app import Message, RecordDict
assert "flwr.simulation" not in sys.modules and "ray" not in sys.modules
random = np.random.default_rng(0)
x, y = random.normal(size=(8, 5)).astype("f4"), random.integers(0, 3, 8)
data = federated.ClientData(x, y, x, y)
app = federated.client_app(sys.argv[1], lambda k, n: data)
grid = LocalGrid(app, 1)
start = federated.Client(sys.argv[1]).give()
message = Message(RecordDict({"arrays": record(start)}), 2, "train")
(reply,) = grid.send_and_receive([message])
print(reply.content.metric_records["metrics"]["num-examples"])
"""


def test_a_client_process_never_imports_torch(tmp_path: Path) -> None:
    """Each message of a deployment starts a process, and importing torch takes seconds."""
    path = clients.program().save(tmp_path / "net.whet")
    command = [sys.executable, "-c", CLIENT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "8"
    code = "import sys, whet.federated; print('flwr' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedadam", "krum", "trimmed"])
def test_flowers_strategies_train_a_program(name: str) -> None:
    options = {"fedadam": {"eta": 0.1}, "krum": {"num_malicious_nodes": 1}}.get(name, {})
    parts, test = clients.clients(4, alpha=100.0), clients.judges()
    found = simulate(clients.program(), parts, 4, Local(mu=0.01), strategy=name, test=test,
                     **{"min_evaluate_nodes": 0, **options})  # fmt: skip
    assert [r.number for r in found.rounds] == [0, 1, 2, 3, 4]
    assert found.accuracy > 0.7 > 0.5 > found.rounds[0].accuracy
    assert {a.dtype for a in found.arrays.values()} == {np.dtype(np.float32)}


def test_a_server_runs_its_rounds_and_reports() -> None:
    nodes, results, seen = grid(), [], []
    app = server_app(
        "fedavg", clients.program(), rounds=9, evaluate=lambda turn, arrays: seen.append(turn),
        finished=results.append, fraction_evaluate=1.0,
    )  # fmt: skip
    config = {"num-server-rounds": 2, "lr": 0.05}
    app(nodes, Context(run_id=0, node_id=1, node_config={}, state=RecordDict(), run_config=config))
    assert seen == [0, 1, 2]
    assert results[0].evaluate_metrics_clientapp[2]["accuracy"] > 0.5
    assert results[0].train_metrics_clientapp[1].keys() == {"train_loss"}


def spoiled(nodes: int, by: int) -> LocalGrid:
    """A grid of this many nodes, of which the first `by` send NaN."""
    parts = clients.clients(nodes)

    def mod(message: Message, context: Context, call_next: Any) -> Message:
        reply = call_next(message, context)
        if context.node_config["partition-id"] < by and message.metadata.message_type == "train":
            arrays = received(reply)
            reply.content["arrays"] = record(arrays | {"0.bias": arrays["0.bias"] * np.nan})
        return reply

    return LocalGrid(client_app(clients.program(), lambda k, _: parts[k], mods=[mod]), nodes)


def run(nodes: LocalGrid, rounds: int = 1) -> Any:
    initial = Client(clients.program()).give()
    return initial, start(
        nodes, "fedavg", initial, rounds, local=Local(), evaluate=None, config={},
        fraction_evaluate=0.0, min_train_nodes=4,
    )  # fmt: skip


def test_a_server_refuses_what_is_not_finite_unless_told_otherwise() -> None:
    initial, result = run(spoiled(4, by=1))
    replies = list(asked(grid(), "train", initial, **{"server-round": 1}))
    expected, _ = strategy_of("fedavg").aggregate_train(1, replies[1:])
    for name, array in result.arrays.items():
        assert np.array_equal(array.numpy(), expected[name].numpy())


def test_without_a_sound_reply_the_global_model_stays() -> None:
    _, result = run(spoiled(4, by=4))
    assert not result.arrays and not result.train_metrics_clientapp


def test_the_others_go_on_if_a_client_fails() -> None:
    parts = clients.clients()

    def data(k: int, count: int) -> Any:
        if k == 1:
            raise OSError("the disk is gone")
        return parts[k]

    nodes = LocalGrid(client_app(clients.program(), data), 4)
    initial, result = run(nodes)
    three = LocalGrid(client_app(clients.program(), lambda k, _: parts[k]), 4)
    replies = list(asked(three, "train", initial, **{"server-round": 1}))
    expected, _ = strategy_of("fedavg").aggregate_train(1, [replies[0], *replies[2:]])
    for name, array in result.arrays.items():
        assert np.array_equal(array.numpy(), expected[name].numpy())


def test_a_client_refuses_what_is_not_its_model() -> None:
    initial = Client(clients.program()).give()
    for wrong in (
        {n: a for n, a in initial.items() if n != "0.bias"},
        initial | {"0.bias": np.full(8, np.nan, np.float32)},
    ):
        replies = asked(grid(), "train", wrong)
        assert all(reply.has_error() for reply in replies)
        assert "DataError" in replies[0].error.reason


def test_unknown_words_are_refused() -> None:
    with pytest.raises(WhetError, match="there is no strategy 'fedsgd'"):
        strategy_of("fedsgd")
    with pytest.raises(WhetError, match="there is no engine 'spark'"):
        simulate(clients.program(), clients.clients(), engine="spark")
    with pytest.raises(WhetError, match="min_train_nodes: the strategy is made already"):
        strategy_of(strategy_of("fedavg"), min_train_nodes=3)
    empty = Message(RecordDict({"m": MetricRecord({})}), 2, "train")
    with pytest.raises(WhetError, match="0 records of arrays"):
        received(empty)
    with pytest.raises(DataError):
        Client(clients.program()).take({})
