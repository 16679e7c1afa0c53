"""The Flower app in examples/federated runs as its page says, and learns."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from examples import ROOT
from whet.federated import ClientData, Local, dirichlet, federate

EXAMPLE = ROOT / "examples" / "federated"
CONFIG = """[superlink]
default = "here"
[superlink.here]
address = "127.0.0.1:{port}"
insecure = true
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(port: int, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"nobody listens on {port}")


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


@pytest.mark.slow
def test_the_app_learns_and_equals_the_loop(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    app, home, port = tmp_path / "app", tmp_path / "home", free_port()
    shutil.copytree(EXAMPLE, app)
    subprocess.run([sys.executable, "prepare.py", str(home)], cwd=app, check=True)
    (home / "flower").mkdir()
    (home / "flower" / "config.toml").write_text(CONFIG.format(port=port))
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    places = {"FEDERATED_HOME": str(home), "FLWR_HOME": str(home / "flower")}
    environment = os.environ | quiet | places | {"RAY_USAGE_STATS_ENABLED": "0"}
    command = [tool("flower-superlink"), "--insecure", "--simulation", "--host", "127.0.0.1",
               "--port", str(port), "--disable-runtime-dependency-installation"]  # fmt: skip
    with open(home / "superlink.log", "wb") as log:
        link = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(port)
            words = ["run", ".", "here", "--federation-config", "num-supernodes=2", "--stream"]
            done = subprocess.run(
                [tool("flwr"), *words], cwd=app, env=environment, capture_output=True, text=True,
                timeout=300,
            )  # fmt: skip
        finally:
            link.terminate()
            link.wait(30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home / "result.npz").exists(), done.stdout
    found = np.load(home / "result.npz")
    expected = by_the_loop(app, home)
    assert set(found.files) == expected.arrays.keys()
    assert all(np.array_equal(found[name], a) for name, a in expected.arrays.items())
    assert expected.accuracy > 0.85 > 0.5 > expected.rounds[0].accuracy
    assert f"round 6: accuracy {expected.accuracy:.3f}" in done.stdout


def by_the_loop(app: Path, home: Path):
    config = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    data = np.load(home / "data.npz")
    rows = dirichlet(data["y"], 2, alpha=0.5, least=8)
    parts = [ClientData(data["x"][r], data["y"][r], data["x_test"], data["y_test"]) for r in rows]
    test = data["x_test"], data["y_test"]
    rounds = config["num-server-rounds"]
    return federate(home / "net.whet", parts, rounds, Local.of(config), test=test)
