"""What WHET_DEBUG=passes and `whet ir --after` show of a compilation."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

import whet
from examples import ROOT
from tiny import convnet, mlp
from whet.debug import STEPS, Recorder, check_step, observer, observing
from whet.errors import FrontendError
from whet.ir import Graph
from whet.ir.text import parse_graph
from whet.passes import PASSES

IMAGES, VECTORS = (torch.zeros(2, 3, 6, 4),), (torch.zeros(4, 5),)
LINE = re.compile(
    r"(\w+) +(\w+) +nodes +(\d+)(?: -> (\d+))? +peak +([\d,]+)(?: -> ([\d,]+) +\(([+-][\d,]+)\))?"
)


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def test_a_line_for_every_pass_that_changed_a_graph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHET_DEBUG", "passes")
    program = whet.compile(convnet(), IMAGES)
    matches = [LINE.fullmatch(line) for line in capsys.readouterr().err.splitlines()]
    lines = [match.groups() for match in matches if match]
    assert len(lines) == len(matches) > 5
    step = [words for words in lines if words[0] == "train_step"]
    assert step[0][1] == "differentiate" and {"reorder", "fuse_layers"} <= {w[1] for w in step}
    for before, after in pairwise(step):  # nothing happens between two lines
        assert after[2] == (before[3] or before[2]) and after[4] == (before[5] or before[4])
    for _, _, _, _, old, new, change in step[1:]:
        assert whole(new) - whole(old) == whole(change)
    assert whole(step[-1][5]) == program.plans["train_step"].lower_bound


def test_the_page_shows_these_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHET_DEBUG", "passes")
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
    more = nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)
    whet.compile(nn.Sequential(*layers, *more).eval(), (torch.zeros(2, 3, 8, 8),))
    page = (ROOT / "docs" / "contributing" / "add-a-pass.md").read_text()
    shown = page.split("$ WHET_DEBUG=passes")[1].split("...")[0].splitlines()[1:]
    assert len(shown) == 10 and capsys.readouterr().err.splitlines()[:10] == shown


def test_the_graph_after_every_pass_is_written_to_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHET_DEBUG", f"passes:{tmp_path / 'graphs'}")
    program = whet.compile(mlp(), VECTORS)
    files = sorted((tmp_path / "graphs").iterdir())
    assert [f.name[4:] for f in files[:2]] == ["training-import.ir", "prediction-import.ir"]
    last = [f for f in files if "-train_step-" in f.name][-1]
    graph = program.entries["train_step"]
    assert str(parse_graph(last.read_text(), graph.data)) == str(graph)
    names = {f.stem.split("-")[-1] for f in files}
    assert {"differentiate", "share_common", "reorder", "schedule"} <= names <= {*STEPS}


def test_a_recorder_sees_the_way_that_a_pass_with_an_alternative_took() -> None:
    recorder = Recorder("train_step")
    with observing(recorder):
        program = whet.compile(convnet().train(), IMAGES, rematerialize="layers")
    ran = list(recorder.seen)
    assert ran == [step for step in STEPS if step in ran], "each once, in the order of the tuple"
    assert "rematerialize" in ran
    graph, line = recorder.after(ran[-1])
    assert str(graph) == str(program.entries["train_step"]) and line.startswith("train_step ")


@pytest.mark.parametrize("entry", ["train_step", "predict"])
def test_before_differentiation_there_is_the_model(entry: str) -> None:
    recorder = Recorder(entry)
    with observing(recorder):
        whet.compile(mlp(), VECTORS)
    graph, line = recorder.after("fold_constants")
    assert ("label" in str(graph)) == (entry == "train_step")
    assert line.startswith("training " if entry == "train_step" else "prediction ")


def test_a_pass_that_did_not_run() -> None:
    recorder = Recorder("train_step")
    with observing(recorder):
        whet.compile(mlp(), VECTORS, without=["reorder"])
    with pytest.raises(FrontendError, match="reorder did not run on train_step") as error:
        recorder.after("reorder")
    assert "share_common" in str(error.value)


def test_an_unknown_pass_and_an_unknown_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {p.name for p in PASSES} < {*STEPS} and len(STEPS) == len(PASSES) + 3
    assert check_step("import") == "import"
    with pytest.raises(FrontendError, match="there is no pass 'reord'") as error:
        check_step("reord")
    assert "fold_batch_norm, fuse_attention, fold_constants" in str(error.value)
    monkeypatch.setenv("WHET_DEBUG", "everything")
    with pytest.raises(FrontendError, match="WHET_DEBUG=everything is not a valid value"):
        observer()


def test_without_a_wish_nothing_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHET_DEBUG", raising=False)
    assert observer() is None

    def observe(step: str, entry: str, before: Graph | None, after: Graph) -> None:
        """Nothing: it is only asked for."""

    with observing(observe):
        assert observer() is observe
    assert observer() is None
