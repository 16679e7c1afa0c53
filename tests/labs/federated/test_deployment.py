"""A federation over TLS on this machine: two clients, a microcontroller, and a hostile client."""

from __future__ import annotations

import http.client
import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import clients
import deployment
import whet
from deployment import Deployment
from examples import ROOT
from gateways import device_program
from whet.federated import Client, GatewayClient, Local, average
from whet.runtime.update import by_name, coordinates, decode

pytestmark = pytest.mark.slow
APP = ROOT / "tests" / "support" / "deployed"
SEND = whet.Send(clip=0.5, top_k=0.5)
LOCAL = Local(epochs=2, lr=0.05)
DEVICE = 2  # which client is a microcontroller


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A SuperLink, a gateway and the files of the app. Three clients, of which one is hostile too:
    it has the samples of client 0."""
    root = tmp_path_factory.mktemp("deployment")
    app, home = root / "app", root / "home"
    shutil.copytree(APP, app, ignore=shutil.ignore_patterns("__pycache__"))
    with Deployment(home, app) as found:
        clients.program().save(home / "net.whet")
        device = device_program(SEND, "cortex-m7")
        device.save(home / "device.whet")
        np.save(home / "model.npy", np.array([device.fingerprint, coordinates(device)]))
        for k, part in enumerate(parts()):
            np.savez(home / f"part{k}.npz", **vars(part))
        words = [str(home / "device.whet"), "--socket", str(home / "gate")]
        own = ["--data", str(home / f"part{DEVICE}.npz")]
        found.start("gateway", sys.executable, "-m", "whet", "fed", "gateway", *words, *own)
        found.superlink()
        found.wait_until((home / "gate").exists, "gateway")
        yield found


def parts() -> list[Any]:
    three = clients.clients(3)
    return [*three, three[0]]


def expected(start: dict[str, np.ndarray], turn: int, who: list[int]) -> dict[str, np.ndarray]:
    """What the global model becomes, computed in this process."""
    client = Client(clients.program(target="portable"))
    device = device_program(SEND)
    own = Client(device)
    replies = []
    for k in who:
        if k != DEVICE:
            replies.append(client.train(start, parts()[k], LOCAL, turn, k)[0])
            continue
        own.take(start)
        own.trainer.begin()
        own.learn(parts()[k], LOCAL, turn, k)
        changes = by_name(device, decode(own.trainer.delta(turn)))
        replies.append({name: array + changes[name] for name, array in start.items()})
    return average(replies, [len(parts()[k].y) for k in who])


def test_three_rounds_with_a_node_that_dies_and_one_that_lies(deployed: Deployment) -> None:
    """Client 1 is killed while it trains in round 2, and comes back for round 3.

    The server waits until the SuperLink misses the node's heartbeats, averages the replies that
    there are, and begins the next round when all four nodes are there again.
    """
    home = deployed.home
    (home / "hang-next").touch()
    keys = [deployed.key(f"key{k}") for k in range(4)]
    for k in range(4):
        more = {2: {"gateway": str(home / "gate")}, 3: {"hostile": 1}}.get(k, {})
        deployed.supernode(f"node{k}", keys[k], partition_id=k, num_partitions=3, **more)
    deployed.start("run", deployment.tool("flwr"), "run", ".", "here", "--stream")
    deployed.wait_until((home / "hanging-1").exists, "superlink")
    deployed.kill("node1")
    (home / "hang-1").unlink()
    deployed.again("node1", keys[1], partition_id=1, num_partitions=3)
    deployed.wait_until((home / "rejected.json").exists, "superlink")

    models = [dict(np.load(home / f"round{turn}.npz")) for turn in range(4)]
    for turn, who in enumerate([[0, 1, 2], [0, 2], [0, 1, 2]], start=1):
        for name, array in expected(models[turn - 1], turn, who).items():
            np.testing.assert_allclose(models[turn][name], array, atol=2e-6)
            assert np.abs(models[turn][name] - models[turn - 1][name]).max() > 1e-3
    client, judges = Client(clients.program()), clients.judges()
    losses = [client.judge(model, *judges).loss for model in models]
    assert losses[0] > losses[1] > losses[3]

    rejected = json.loads((home / "rejected.json").read_text())
    reasons = [list(rejected[str(turn)].values()) for turn in (1, 2, 3)]
    assert [len(r) for r in reasons] == [1, 1, 1], reasons
    assert "'0.bias' holds 1 numbers that are NaN" in reasons[0][0]
    assert "the limit is 10" in reasons[1][0]
    assert "it is of round 1: this is round 3" in reasons[2][0]
    for (reason,) in reasons:
        assert f"update rejected, {reason}" in deployed.log("run") + deployed.log("superlink")
    assert GatewayClient(home / "gate", 60).about().examples == len(parts()[DEVICE].y)
    assert deployed.log("gateway").count("bytes") == 3


def test_a_key_that_is_not_registered_is_refused(deployed: Deployment) -> None:
    deployed.supernode("stranger", deployed.key("strange", register=False))
    process = deployed.processes["stranger"]
    assert process.wait(deployment.PATIENCE) == 1
    text = deployed.log("stranger")
    assert "Exit Code: 305" in text and deployment.CONNECTED not in text, text
    assert "No SuperNode found with the given public key" in deployed.log("superlink")


def test_without_tls_nobody_is_served(deployed: Deployment) -> None:
    line = http.client.HTTPConnection("127.0.0.1", deployed.port, timeout=10)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        line.request("GET", "/")
        line.getresponse()
    line.close()
