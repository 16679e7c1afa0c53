"""A front end without torch: the example of docs/contributing/add-a-front-end.md."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from examples import ROOT, examples
from whet.pipeline import Options, compiled

PAGE = ROOT / "docs" / "contributing" / "add-a-front-end.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the first example defines: the front end and a model for it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(examples(PAGE)[0][0], str(PAGE), "exec"), names)
    return names


def test_the_page_runs_where_torch_cannot_be_imported() -> None:
    code = "import sys; sys.modules['torch'] = None\n"
    code += "\n".join(text for text, _ in examples(PAGE))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(expected or "" for _, expected in examples(PAGE))
    assert done.stdout.count("\n") == 2


def test_it_trains_as_pytorch_does(page: dict[str, Any]) -> None:
    given = json.loads(page["TEXT"])
    model = nn.Sequential()
    for layer in given["layers"]:
        weight, bias = torch.tensor(layer["weight"]), torch.tensor(layer["bias"])
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": bias})
        model.add_module(layer["name"], linear)
        if "activation" in layer:
            model.add_module("activation", nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=given["lr"])
    everything = whet.Scheme([whet.Rule("*")])
    trainer = compiled(page["JsonModel"](page["TEXT"]), everything, Options()).load()
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, labels = rng.standard_normal((4, 2), np.float32), rng.integers(0, 2, 4)
        loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step(x, labels) == pytest.approx(loss.item(), rel=1e-5)
    ours = trainer.arrays()
    assert ours.keys() == dict(model.named_parameters()).keys()
    for name, theirs in model.named_parameters():
        np.testing.assert_allclose(ours[name], theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
