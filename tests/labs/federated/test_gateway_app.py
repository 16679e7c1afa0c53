"""Flower's messages from the server's strategy to a device behind a gateway, and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clients
import whet
from gateways import device_program, serving
from hostile import put
from whet.federated import Client, Local, gateway_app
from whet.labs.federated.frames import Trained
from whet.labs.federated.gateway import GatewayClient
from whet.labs.federated.guard import Guard
from whet.runtime.update import Update, by_name, coordinates, decode, encode

pytest.importorskip("flwr")
from whet.labs.federated.grid import LocalGrid
from whet.labs.federated.guarded import guarded
from whet.labs.federated.server import start
from whet.labs.federated.strategies import strategy_of

LOCAL = Local(epochs=1, lr=0.05)
SEND = whet.Send(clip=0.5, top_k=0.5)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def initial() -> dict[str, np.ndarray]:
    return Client(clients.program()).give()


def federated(path: Path, rounds: int, evaluate: float = 0.0) -> tuple[Any, Any]:
    """The strategy and the result of some rounds with one device."""
    device = device_program(SEND)
    few = {"min_train_nodes": 1, "min_available_nodes": 1, "min_evaluate_nodes": 1}
    fedavg = strategy_of("fedavg", fraction_evaluate=evaluate, **few)
    behind = guarded(fedavg, Guard(program=device, max_norm=1.0))
    grid = LocalGrid(gateway_app(path), 1)
    result = start(grid, behind, initial(), rounds, local=LOCAL, evaluate=None, config={})
    return behind, result


def test_the_global_model_moves_by_what_the_device_sent(tmp_path: Path) -> None:
    with serving(device_program(SEND), tmp_path / "gate"):
        behind, result = federated(tmp_path / "gate", 2, evaluate=1.0)
    assert behind.rejected == {1: {}, 2: {}}
    own, expected = Client(device_program(SEND)), initial()
    for turn in (1, 2):
        own.take(expected)
        own.trainer.begin()
        own.learn(clients.clients()[0], LOCAL, turn, 0)
        update = decode(own.trainer.delta(turn))
        assert update.k == 38 and np.linalg.norm(update.values) <= 0.5
        changes = by_name(own.trainer.program, update)
        expected = {name: array + changes[name] for name, array in expected.items()}
    for name, array in result.arrays.items():
        np.testing.assert_allclose(array.numpy(), expected[name], atol=1e-6)
    score = own.judge(expected, *clients.judges())
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == pytest.approx(score.accuracy)


def test_a_node_without_a_gateway_says_so(tmp_path: Path) -> None:
    assert not federated(tmp_path / "nobody", 1)[1].arrays
    from flwr.app import Message, RecordDict

    from whet.labs.federated.client import record

    grid = LocalGrid(gateway_app(), 1)
    message = Message(RecordDict({"arrays": record(initial())}), 2, "train")
    (reply,) = grid.send_and_receive([message])
    assert "the node has no gateway" in reply.error.reason


def changed(values: Callable[[Update], dict[str, Any]]) -> Callable[[bytes], bytes]:
    def change(blob: bytes) -> bytes:
        update = decode(blob)
        return encode(replace(update, **values(update)))

    return change


N = coordinates(device_program(SEND))
HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "wrong shape": (changed(lambda u: {"n": N + 1}), "it has 76 coordinates: this model has 75"),
    "nan": (lambda blob: put(len(blob) - 4, "<f", float("nan"))(blob), "1 of 38 values are NaN"),
    "huge norm": (changed(lambda u: {"values": u.values * 1e6}), "the limit is 1"),
    "foreign model": (changed(lambda u: {"fingerprint": 99}), "another model or scheme"),
    "replayed round": (changed(lambda u: {"round": 0}), "it is of round 0: this is round 1"),
    "cut": (lambda blob: blob[:-1], "its checksum is wrong"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_gateway_does_not_move_the_global_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, words = HOSTILE[name]
    honest = GatewayClient.train

    def train(*args: Any, **words: Any) -> Trained:
        found = honest(*args, **words)
        return replace(found, update=change(found.update))

    monkeypatch.setattr(GatewayClient, "train", train)
    with serving(device_program(SEND), tmp_path / "gate"):
        behind, result = federated(tmp_path / "gate", 1)
    (reason,) = behind.rejected[1].values()
    assert words in reason and not result.arrays
