"""The pipeline with a teacher."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import whet
from blobs import DATA, MODEL, OPTIONS, TEST, net, same
from whet import compress
from whet.cli import app
from whet.errors import CheckpointError, SchemeError
from whet.labs.compress.distill import Angles, Distances, Logits


def wide() -> nn.Module:
    """A trained teacher."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    with torch.random.fork_rng(devices=[]):
        compress.fitting(DATA, TEST, epochs=8, lr=0.01, batch=32)[0](model)
    return model


def test_rounds_learn_from_a_teacher_and_resume(tmp_path: Path) -> None:
    """Labels that say nothing show where the student learned."""
    teacher, noise = wide(), (DATA[0], np.random.default_rng(3).permutation(DATA[1]))
    losses = [Logits(weight=30.0)]
    options = OPTIONS | dict(first=8, lr=0.01)
    alone = compress.compress(net(), noise, **options)
    taught = compress.compress(
        net(), noise, **options, distill=teacher, losses=losses, folder=tmp_path
    )
    assert taught.accuracy > 75 > alone.accuracy + 10
    assert "distill: Sequential" in taught.text()
    again = compress.compress(
        net(), noise, **options, distill=teacher, losses=losses, folder=tmp_path
    )
    assert same(taught.model, again.model)
    with pytest.raises(CheckpointError, match="of another run"):
        compress.compress(net(), noise, **options, folder=tmp_path)
    other = [Logits(weight=30.0, temperature=1.0)]
    with pytest.raises(CheckpointError, match="of another run"):
        compress.compress(net(), noise, **options, distill=teacher, losses=other, folder=tmp_path)


def test_losses_may_compare_samples_with_each_other() -> None:
    losses = [Distances("0"), Angles("0")]
    made = compress.compress(net(), DATA, **OPTIONS, distill=wide(), losses=losses)
    assert made.accuracy > 80


def test_a_teacher_that_cannot_teach_is_refused_before_any_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whet.labs.compress.distill.distill", lambda *_: pytest.fail("it trained"))
    with pytest.raises(whet.WhetError, match="classes"):
        compress.compress(net(), DATA, distill=nn.Linear(8, 5))
    with pytest.raises(SchemeError, match="is no teacher"):
        compress.compress(net(), DATA, distill="teacher")
    broken = wide()
    with torch.no_grad():
        broken[0].weight.fill_(float("nan"))
    with pytest.raises(whet.WhetError, match="not finite"):
        compress.compress(net(), DATA, distill=broken)


def test_the_command_takes_a_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    Path("big.py").write_text(MODEL.replace("24", "48"))
    np.savez("data.npz", x=DATA[0], y=DATA[1], x_test=TEST[0], y_test=TEST[1])
    words = (
        "compress net.py:make --input 1,8 --data data.npz -o out --prune 0.6 --rounds 1 --first 1"
    )
    done = CliRunner().invoke(app, [*words.split(), "--distill", "big.py:make"])
    assert done.exit_code == 0, done.output
    assert "distill: Sequential" in Path("out/compression.txt").read_text()
