"""`whet fed simulate`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import clients
from whet.cli import app
from whet.errors import DataError

MODEL = """
from torch import nn
def make():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    x, y = clients.samples()
    np.savez("data.npz", x=x, y=y)
    return tmp_path


def run(words: str) -> str:
    done = CliRunner().invoke(app, ["fed", "simulate", *words.split()], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def accuracy(output: str) -> float:
    return float(output.split("before, ")[1].split("%")[0])


def test_clients_train_a_model(folder: Path) -> None:
    words = "net.py:make --data data.npz --clients 4 --rounds 4 --alpha 0.5 --lr 0.1 --batch 4"
    output = run(f"{words} -o plot.svg")
    assert "4 clients with" in output and "75 numbers travel" in output
    assert accuracy(output) > 80
    assert "4 clients, Dirichlet(0.5)" in Path("plot.svg").read_text()
    assert output == run(f"{words} -o plot.svg"), "the same seed gives the same result"


def test_only_the_last_layer_in_int8(folder: Path) -> None:
    output = run(
        "net.py:make --data data.npz --clients 3 --rounds 3 --lr 0.1 --batch 4 --update last "
        "--dtype int8 --int8 rounding=carry8 --strategy fedprox --mu 0.01 --epochs 2"
    )
    assert "27 numbers travel" in output and accuracy(output) > 60


def test_a_saved_program_with_test_samples(folder: Path) -> None:
    clients.program().save("net.whet")
    (x, y), (x_test, y_test) = clients.samples(), clients.judges()
    np.savez("both.npz", x=x[: clients.TRAIN], y=y[: clients.TRAIN], x_test=x_test, y_test=y_test)
    output = run("net.whet --data both.npz --clients 4 --rounds 4")
    assert accuracy(output) > 80
    still = run("net.whet --data both.npz --clients 4 --rounds 1 --lr 0")
    before, after = (float(still.split(w)[0].split()[-1][:-1]) for w in (" before", " after"))
    assert before == after, "the rate can be changed"
    with pytest.raises(DataError, match="compiled already") as error:
        run("net.whet --data both.npz --update last --batch 2 --dtype int8 --momentum 0.9")
    assert "--batch, --dtype, --momentum, --update" in str(error.value)


def test_what_does_not_go_together_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="fedavg has no --mu"):
        run("net.py:make --data data.npz --mu 0.1")
    with pytest.raises(DataError, match="too few for 600 clients"):
        run("net.py:make --data data.npz --clients 600")
