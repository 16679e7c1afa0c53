"""Files of Keras on the command line: they are trained as they were compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import whet
from whet.cli import app
from whet.cli.models import Invocation
from whet.cli.options import LossName, OptimizerName
from whet.errors import FrontendError, for_the_shell
from whet.frontend.keras.backend import keras as keras_on_torch
from whet.models import from_keras

keras = keras_on_torch()
L = keras.layers
INPUT = ["4,3"]


def saved(folder: Path, *told: Any, **options: Any) -> str:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((3,)), L.Dense(4, activation="softmax", name="head")], name="net"
    )
    if told or options:
        model.compile(*told, **options)
    model.save(folder / "net.keras")
    return str(folder / "net.keras")


@pytest.fixture
def net(tmp_path: Path) -> str:
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9, global_clipnorm=2.0)
    return saved(tmp_path, optimizer, "sparse_categorical_crossentropy")


def test_the_program_is_that_of_model_compiled(net: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["compile", net, "-i", "4,3", "-o", str(tmp_path / "out")])
    assert found.exit_code == 0, found.output
    assert f"loss of {net}: sparse_categorical_crossentropy" in found.stderr
    words = "SGD(learning_rate=0.5, momentum=0.9, global_clipnorm=2)"
    assert f"optimizer of {net}: {words}" in found.stderr
    model = from_keras(net)
    inputs = model.example(4)
    ours = Invocation(net, INPUT).compile()
    theirs = whet.compile(model, inputs, **model.compiled(4))
    assert ours.files == theirs.files
    x, y = torch.randn(4, 3), torch.arange(4)
    loss = torch.nn.functional.nll_loss(model(x).log(), y)
    assert ours.load().step(x, y) == pytest.approx(loss.item(), rel=1e-5)


def test_json_is_alone_on_standard_output(net: str) -> None:
    found = CliRunner().invoke(app, ["plan", net, "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) and f"loss of {net}" in found.stderr


def test_what_is_asked_for_goes_before_what_the_file_says(net: str, capsys: Any) -> None:
    by_hand = Invocation(net, INPUT, LossName.mse, OptimizerName.adam, lr=0.25).arguments()
    assert by_hand["loss"] == "mse" and "labels" not in by_hand
    assert type(by_hand["optimizer"]) is torch.optim.Adam and by_hand["clip_norm"] is None
    assert capsys.readouterr().err == ""
    half = Invocation(net, INPUT, LossName.cross_entropy, lr=0.25, clip_norm=3.0).arguments()
    (group,) = half["optimizer"].param_groups
    assert (group["lr"], group["momentum"], half["clip_norm"]) == (0.25, 0.9, 3.0)
    assert half["loss"] == "cross-entropy"
    printed = capsys.readouterr().err
    assert "loss of" not in printed and "with --lr 0.25" in printed
    other = Invocation(net, INPUT, optimizer=OptimizerName.sgd).arguments()
    assert other["optimizer"].param_groups[0]["lr"] == 0.01 and callable(other["loss"])
    with pytest.raises(FrontendError, match="--weight-decay is for an optimizer of the command"):
        Invocation(net, INPUT, weight_decay=0.1).arguments()


def test_a_file_that_was_not_compiled_is_trained_as_others_are(tmp_path: Path) -> None:
    found = Invocation(saved(tmp_path), INPUT).arguments()
    assert found["loss"] == "cross-entropy" and "labels" not in found
    assert found["optimizer"].param_groups[0]["lr"] == 0.01


def test_what_cannot_be_translated_names_options(tmp_path: Path) -> None:
    net = saved(tmp_path, "rmsprop", "cosine_similarity")
    with for_the_shell():
        with pytest.raises(FrontendError, match=r"(?s)loss cosine_similarity.*--loss"):
            Invocation(net, INPUT).arguments()
        with pytest.raises(FrontendError, match=r"(?s)optimizer RMSprop.*--optimizer"):
            Invocation(net, INPUT, LossName.mse).arguments()
    assert Invocation(net, INPUT, LossName.mse, OptimizerName.sgd).arguments()["loss"] == "mse"


def test_ids_of_a_file_are_ids_in_a_program(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((5,)), L.Embedding(7, 3), L.Flatten(), L.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    path = tmp_path / "ids.keras"
    model.save(path)
    found = CliRunner().invoke(app, ["check", str(path), "--steps", "2"])
    assert found.exit_code == 0, found.output
    assert "SparseCategoricalCrossentropy of logits" in found.stderr
