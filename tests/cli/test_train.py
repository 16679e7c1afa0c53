"""`whet train`: what it writes, how it resumes, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from whet.callbacks import EarlyStopping
from whet.cli import main

MODEL = """
import torch
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""
X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)
WORDS = ["train", "net.py:mlp", "-i", "4,4", "--data", "train.npz", "--lr", "0.1"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Any:
    (tmp_path / "net.py").write_text(MODEL)
    np.savez(tmp_path / "train.npz", x=X, y=Y, x_test=X[:10], y_test=Y[:10])
    np.savez(tmp_path / "wide.npz", x=np.zeros((8, 5), np.float32), y=Y[:8])
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["whet", *WORDS, *words])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return int(caught.value.code or 0), printed.out + printed.err

    return run


def test_it_trains_within_a_budget_and_writes_everything(command: Any, tmp_path: Path) -> None:
    code, printed = command("--out", "run", "--epochs", "3", "--ram", "8K", "--update", "last")
    assert code == 0, printed
    assert "epoch 3/3  loss" in printed and "val_accuracy" in printed
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == set("run.zip weights.ckpt program.whet history.json history.svg report.txt "
                        "report.html".split())  # fmt: skip
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    program = whet.load(tmp_path / "run" / "program.whet")
    assert program.memory["ram"] <= 8 * 1024 and len(program.trained) == 2
    trainer, other = program.load(), program.load()
    trainer.load(tmp_path / "run" / "weights.ckpt")
    assert trainer.evaluate((X[:10], Y[:10]))["loss"] == history["val_loss"][-1]
    assert other.fit((X, Y), epochs=3, verbose=0).history["loss"] == history["loss"]
    assert other.save() == trainer.save()
    assert program.report() in (tmp_path / "run" / "report.txt").read_text()
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()


def test_a_stopped_run_goes_on_only_if_asked(
    command: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    words = "--epochs", "4", "--patience", "2", "--validation-data", "train.npz"
    assert command("-o", "whole", *words)[0] == 0
    on_epoch_end, left = EarlyStopping.on_epoch_end, [3]

    def interrupted(self: EarlyStopping, state: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return on_epoch_end(self, state)

    monkeypatch.setattr(EarlyStopping, "on_epoch_end", interrupted)
    code, printed = command("-o", "run", *words)
    assert code == 130 and "the same command with --resume resumes from run" in printed
    code, printed = command("-o", "run", *words)
    assert code == 1 and "holds a run already" in printed and "--resume" in printed
    code, printed = command("-o", "run", "--resume", *words)
    assert code == 0 and "epoch 2/4" not in printed and "epoch 4/4" in printed
    for name in ("weights.ckpt", "history.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    code, printed = command("-o", "run", "--resume", "--epochs", "5")
    assert code == 1 and "epochs was 4, and is 5 now" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "0 is not in the range"),
        (["--ram", "100"], "exceed the budget of 100 B"),
        (["--data", "no.npz"], "No such file"),
        (["--validation-data", "no.npz"], "No such file"),
        (["--data", "wide.npz"], "x, samples 0 to 3"),
        (["-o", "net.py"], "net.py is a file"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value[0],
)
def test_what_cannot_work_is_said_before_training(
    words: list[str], message: str, command: Any, tmp_path: Path
) -> None:
    code, printed = command("-o", "run", *words)
    assert code != 0 and message in printed, printed
    assert not (tmp_path / "run").exists()
