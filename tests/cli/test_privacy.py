"""`whet privacy` on a tiny model."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import whet
from whet.cli import main

MODEL = """
import torch
from torch import nn
def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Sigmoid(), nn.Linear(8, 3)).eval()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    x, y = rng.random((20, 1, 6, 6)).astype(np.float32), rng.integers(0, 3, 20)
    np.savez("data.npz", x=x[:12], y=y[:12], x_test=x[12:], y_test=y[12:])
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["whet", "privacy", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)


AUDIT = ("audit", "net.py:make", "--input", "1,1,6,6", "--data", "data.npz")


def test_an_audit_prints_its_table_and_writes_its_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, *AUDIT, "--attack", "analytic", "--defences", "noise:10", "--train-steps", "5",
        "--first", "3", "-o", "found.html")  # fmt: skip
    printed = capsys.readouterr().out
    assert "wrote found.html" in printed
    assert "Recovered: analytic reconstructed the sample" in printed
    assert "accuracy after 5 steps of batch 1 on 12 samples" in printed
    assert "label" in Path("found.html").read_text()


@pytest.mark.parametrize(
    "words,expected",
    [
        (("--first", "12"), "no batch of 1 from sample 12"),
        (("--defences", "gauss"), "no defence 'gauss'"),
        (("--attack", "gan"), "no attack 'gan'"),
        (("-o", "page.txt"), "page.txt is not a .html file"),
    ],
)
def test_what_cannot_be_audited_is_said(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["whet", "privacy", *AUDIT, *words])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert expected in capsys.readouterr().err


def test_a_saved_program_needs_its_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("audit", "net.whet", "--input", "1,1,6,6", "--data", "data.npz")
    monkeypatch.setattr(sys, "argv", ["whet", "privacy", *words])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "an attack needs the PyTorch model" in capsys.readouterr().err


def test_a_saved_program_is_audited_with_its_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    model = importlib.import_module("net").make()
    whet.compile(model, (torch.zeros(1, 1, 6, 6),), update="last").save("net.whet")
    words = ("audit", "net.whet", "--input", "1,1,6,6", "--data", "data.npz", "--train-steps", "3")
    run(monkeypatch, *words, "--of", "net.py:make", "--attack", "dlg", "--iterations", "20",
        "--restarts", "1", "--json")  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert "change of the trained parameters after one local step" in found["sent"]
    (attempt,) = found["attempts"]
    assert attempt["attack"] == "dlg" and len(attempt["psnr"]) == 1
    assert Path(found["page"]).exists()
    Path("net.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    monkeypatch.setattr(sys, "argv", ["whet", "privacy", *words, "--of", "net.py:make"])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "net.whet was not compiled from net.py:make" in capsys.readouterr().err


def test_an_account_names_what_it_assumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dp_accounting")
    run(monkeypatch, "account", "--noise", "1", "--rounds", "100", "--clients", "1000",
        "--per-round", "100")  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["poisson", "fixed", "none", "local"]
    assert "epsilon 7.90" in lines[0] and "replaced" in lines[1]
