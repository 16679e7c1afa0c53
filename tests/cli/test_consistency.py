"""What all commands have in common: help with an example, JSON, exit codes, and a quick start."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
import typer.main
from typer.testing import CliRunner

import whet
from examples import ROOT
from tiny import mlp
from whet import writing
from whet.cli import EXIT_CODES, app, main

DATA = {  # commands whose output is data
    "check", "compare", "compile", "compress", "explain", "fed simulate", "ops", "plan",
    "privacy account", "privacy audit", "run", "search", "train", "tune",
}  # fmt: skip


def commands(group: Any, *words: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *words, name)
        else:
            yield " ".join([*words, name]), command


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_help_has_an_example_that_can_be_parsed(name: str) -> None:
    command = ALL[name]
    (example,) = re.findall(r"^Example: \[cyan\](.*)\[/\]$", command.help or "", re.MULTILINE)
    words = shlex.split(example)
    own = name.split()
    assert words[: 1 + len(own)] == ["whet", *own]
    command.make_context(name, words[1 + len(own) :])  # refuses unknown options and wrong values
    shown = CliRunner().invoke(app, [*own, "--help"], terminal_width=200)
    assert shown.exit_code == 0 and f"whet {name}" in shown.stdout.split("Example:")[1]


@pytest.mark.parametrize("name", ALL)
def test_every_argument_and_option_has_help(name: str) -> None:
    assert [p.name for p in ALL[name].params if not getattr(p, "help", None)] == []


def test_commands_whose_output_is_data_print_json() -> None:
    options = {name: {o for p in c.params for o in p.opts} for name, c in ALL.items()}
    assert {name for name, found in options.items() if "--json" in found} == DATA


def test_exit_codes_are_in_the_help_and_in_the_docs() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    shown = " ".join(CliRunner().invoke(app, ["--help"], terminal_width=200).stdout.split())
    for code, what in EXIT_CODES.items():
        assert f"{code} {what}" in shown
        assert f"| {code} | {what} |" in page
    listed = set(re.findall(r"^\| `whet ([a-z ]+)` \|", page, re.MULTILINE))
    assert listed == set(ALL), "the page lists all commands"
    json_too = set(re.findall(r"^\| `whet ([a-z ]+)` \|.*\| yes \|$", page, re.MULTILINE))
    assert json_too == DATA


def test_completion_for_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell is that of the process that started this one, which may be none."""
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    shown = CliRunner().invoke(app, ["--show-completion"], prog_name="whet")
    assert shown.exit_code == 0 and "complete -o default -F _whet_completion whet" in shown.stdout


def run(monkeypatch: Any, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["whet", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


MODEL = "import torch\ndef make():\n    return torch.nn.Linear(4, 3)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_reports_are_data(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    model = ("model.py:make", "-i", "2,4")
    assert run(monkeypatch, "check", *model, "--steps", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["gradients"]) == {"weight", "bias"} and len(found["losses"]) == 2
    assert max(found["gradients"].values()) < 1e-5
    words = ("--noise", "1", "--rounds", "10", "--clients", "100", "--per-round", "10", "--json")
    assert run(monkeypatch, "privacy", "account", *words) == 0
    accounts = json.loads(capsys.readouterr().out)
    assert all(one["epsilon"] > 0 and one["delta"] == 1e-5 for one in accounts)


def test_programs_are_data(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    model = ("model.py:make", "-i", "2,4", "--json")
    assert run(monkeypatch, "compile", *model, "-o", "out") == 0
    found = json.loads(capsys.readouterr().out)
    assert all((folder / found["folder"] / name).exists() for name in found["files"])
    assert found["program"]["memory"]["trained"] == 4 * 15
    assert run(monkeypatch, "run", *model, "--target", "host", "--steps", "3") == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["losses"]) == 3
    assert " -> " in printed.err and "one made-up batch" in printed.err


def test_results_of_training_are_data(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)).astype(np.float32), rng.integers(0, 3, 40)
    np.savez("data.npz", x=x, y=y, x_test=x, y_test=y)
    data = ("model.py:make", "--data", "data.npz", "--rounds", "1", "--json")
    assert run(monkeypatch, "fed", "simulate", *data, "--clients", "2", "--batch", "4") == 0
    first, last = json.loads(capsys.readouterr().out)
    assert first["train_loss"] is None and last["number"] == 1 and last["sent"] > 0
    assert run(monkeypatch, "compress", *data, "-i", "2,4", "-o", "small", "--prune", "0.5") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stages"][0]["name"] == "start"
    assert all(Path(file).exists() for file in found["files"])


class Interrupted:
    """Writes some files, and then Ctrl-C is pressed."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, path: Path) -> Any:
        self.after -= 1
        if self.after < 0:
            raise KeyboardInterrupt
        return writing.replacing(path)


def test_ctrl_c_leaves_nothing_half_written(folder: Path, monkeypatch: Any) -> None:
    words = ("compile", "model.py:make", "-i", "2,4", "-o", "out")
    assert run(monkeypatch, *words) == 0

    def content() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file()}

    before = content()
    monkeypatch.setattr("whet.emit.program.replacing", Interrupted(after=2))
    assert run(monkeypatch, *words, "--optimizer", "adam") == 130
    assert content() == before
    monkeypatch.setattr("whet.emit.program.replacing", Interrupted(after=3))
    assert run(monkeypatch, *words[:-1], "other") == 130
    assert not [p for p in (folder / "other").rglob("*") if p.is_file()]


def test_a_stopped_compression_says_where_it_resumes(
    folder: Path, monkeypatch: Any, capsys: Any
) -> None:
    np.savez("data.npz", x=np.zeros((8, 4), np.float32), y=np.zeros(8, np.int64))

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("whet.labs.compress.compress", stopped)
    words = ("compress", "model.py:make", "-i", "2,4", "--data", "data.npz", "-o", "small")
    assert run(monkeypatch, *words) == 130
    assert "stopped; the same command resumes from small/states" in capsys.readouterr().err


def test_files_are_replaced_when_they_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(KeyboardInterrupt), writing.replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]
    link = tmp_path / "link"
    link.symlink_to(path)
    writing.write_whole(link, "new")
    assert path.read_text() == "new" and link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    writing.write_whole("/dev/null", "not replaced")
    assert Path("/dev/null").is_char_device()


def test_a_checkpoint_and_a_program_are_replaced_whole(tmp_path: Path, monkeypatch: Any) -> None:
    program = whet.compile(mlp(), (torch.randn(2, 5),), update="last")
    path = tmp_path / "program.whet"
    program.save(path)
    before = path.read_bytes()

    def fails(*_: Any) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("whet.emit.saving.npy", fails)
    with pytest.raises(KeyboardInterrupt):
        program.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["program.whet"]


def imported(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    source = str(Path(whet.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


SLOW = {
    "dp_accounting", "elftools", "flwr", "http.client", "ray", "rich.markdown", "scipy",
    "tokenizers", "torch", "transformers", "urllib.request", "xml.sax", "whet.labs.search",
    "whet.labs.compress", "whet.labs.federated", "whet.labs.privacy",
}  # fmt: skip


def test_importing_whet_imports_nothing_slow() -> None:
    found = imported("import whet")
    assert not found & (SLOW | {"numpy", "typer", "rich"})
    assert {name for name in found if name.startswith("whet")} == {
        "whet", "whet.errors", "whet.names",
    }  # fmt: skip


def test_the_help_imports_nothing_slow() -> None:
    assert not imported("import whet.cli") & SLOW
    code = "from whet.cli import app\napp(['--help'], standalone_mode=False)"
    assert not imported(code) & (SLOW - {"rich.markdown"}), "Typer itself imports that"


def test_all_public_names_are_found() -> None:
    for name in {*whet.__all__, *whet.LATE}:
        assert getattr(whet, name) is not None and name in dir(whet)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        whet.nothing  # noqa: B018
