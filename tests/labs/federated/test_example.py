"""The Flower app in examples/federated runs as its page says, and learns."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from deployment import Deployment
from examples import ROOT
from whet.federated import ClientData, Local, dirichlet, federate

EXAMPLE = ROOT / "examples" / "federated"


@pytest.mark.slow
def test_the_app_learns_and_equals_the_loop(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    app, home = tmp_path / "app", tmp_path / "home"
    shutil.copytree(EXAMPLE, app)
    subprocess.run([sys.executable, "prepare.py", str(home)], cwd=app, check=True)
    with Deployment(home, app, tls=False) as federation:
        federation.superlink("--simulation")
        nodes = ["--federation-config", "num-supernodes=2"]
        done = federation.flwr("run", ".", "here", *nodes, "--stream")
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
