"""Errors about a model name the operator and the line of the user's own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from messages import Function, X, compiling, message
from whet.errors import UnsupportedOps


def square(y: Tensor) -> Tensor:
    return y[:, :2].unsqueeze(1).expand(-1, 2, -1) + 5 * torch.eye(2)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda y: torch.linalg.inv(square(y)), "aten.linalg_inv_ex.default(float32[4, 2, 2])"),
        (lambda y: torch.linalg.cholesky(square(y)), "aten.linalg_cholesky_ex.default("),
        (lambda y: torch.linalg.solve(square(y), y[:, :2]), "aten._linalg_solve_ex.default("),
        (lambda y: torch.linalg.svd(square(y)).S, "aten._linalg_svd.default("),
        (lambda y: torch.linalg.eigvals(square(y)).real, "aten.linalg_eig.default("),
        (lambda y: torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,)), "cond(bool[], "),
    ],
    ids=["inv", "cholesky", "solve", "svd", "eigvals", "cond"],
)
def test_operators_of_many_results_or_none_are_named_with_their_place(
    function: Callable[[Tensor], Tensor], name: str
) -> None:
    model = Function(function)
    text = message(UnsupportedOps, lambda: whet.compile(model, (X,), loss="mse"))
    assert name in text and "(messages.py:" in text, "the line in forward"


def test_an_effect_of_constants_is_had_when_compiling() -> None:
    model = Function(lambda y: y @ torch.linalg.inv(2 * torch.eye(3)))
    program = whet.compile(model, (X,))
    np.testing.assert_allclose(program.load().predict(X), model(X).detach(), rtol=1e-5)


def test_an_operator_that_is_used_often_is_listed_once() -> None:
    text = message(UnsupportedOps, lambda: whet.compile(Function(twice_sorted), (X,)))
    assert text.startswith("1 operator(s)") and text.splitlines()[1].endswith(", 2 times")


def twice_sorted(y: Tensor) -> Tensor:
    for _ in range(2):
        y = torch.cumprod(y, 1).sin()
    return y


def test_the_place_of_a_layer_is_not_in_pytorch() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.Sequential(nn.Tanh(), Curve()))
    graph = whet.compile(model, (X,)).entries["predict"]
    found = {node.loc.module: node.loc.source for node in graph.nodes}
    line = Curve.forward.__code__.co_firstlineno + 1
    assert found["0"] == "" and found["1.0"] == "" and found["1.1"] == f"test_locations.py:{line}"


class Curve(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)


class Decides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x


def test_control_flow_that_depends_on_data_is_shown(monkeypatch: Any) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    text = compiling(nn.Sequential(nn.Linear(5, 3), nn.Sequential(Decides())))
    assert "control flow or shapes depend on the values of its input" in text
    line = Decides.forward.__code__.co_firstlineno + 1
    assert f"at    test_locations.py:{line}  if x.sum() > 0:" in text
    assert "torch.where" in text


def test_what_fails_inside_of_pytorch_is_shown_where_the_model_calls_it(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    path.write_text(
        "from torch import nn\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(7, 3)\n"
        "    def forward(self, x):\n"
        "        return self.fc(x)\n"
    )
    scope: dict[str, Any] = {"__name__": "theirs"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    text = compiling(scope["Net"]())
    assert "the model itself fails" in text and f"at    {path}:8  return self.fc(x)" in text
