"""What objects show of themselves: one short line, and in a notebook a table that is safe."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import tiny
import whet
from whet.emit.program import Program
from whet.labs.common.validate import Outcome
from whet.labs.search.candidate import Candidate, Contributions
from whet.labs.search.report import Finalist, Row, SearchReport
from whet.models import mobilenet_v2
from whet.report import kib
from whet.scheme import Rule, Scheme
from whet.targets.bare_metal.emulator import Watched
from whet.targets.bare_metal.firmware import Firmware
from whet.targets.bare_metal.profile import Cost, Profile

X, _ = next(tiny.vectors())
HOSTILE = "<script>alert(1)</script>&"


@pytest.fixture(scope="module")
def large() -> Program:
    return whet.compile(mobilenet_v2(10, 0.35).eval(), (torch.zeros(1, 3, 32, 32),), update="full")


def assert_short(x: object, *words: str) -> None:
    text = repr(x)
    assert len(text) <= 240 and "\n" not in text, text
    for word in words:
        assert word in text


def test_a_large_program_and_its_parts_are_one_short_line(large: Program) -> None:
    assert_short(large, "Program net for host", "float32", "'full'", f"{large.parameters:,}")
    assert_short(large.scheme, "'full'", f"{len(large.scheme.rules)} rules")
    assert_short(large.entries["train_step"], "train_step", "nodes")
    assert_short(large.plans["train_step"], f"arena={large.arena}")
    assert_short(large.storage, f"{len(large.storage.params)} train")


def test_what_runs_says_of_what_it_is() -> None:
    program = whet.compile(tiny.mlp(), (X,))
    assert repr(program.load()) == f"<Trainer of {program!r}>"
    assert_short(program.check(2), "4 gradients agree", "2 steps")


def test_an_integer_program_says_so() -> None:
    with pytest.warns(UserWarning, match="stays in float32"):
        program = whet.compile(tiny.mlp(), (X,), dtype="int8", calibrate=[X])
    assert_short(program, "int8")
    report = program.check(2)
    assert_short(report, "4 gradients agree")
    assert "fc" in "".join(texts(report._repr_html_()))


def test_thousands_of_addresses_are_not_shown() -> None:
    seen = Watched(10, 4, 3, 2, 1, 0, 512, spent={i: i for i in range(5000)})
    assert_short(seen, "instructions=10", "outside=1", "stack=512")
    board = Firmware(path=None, sections={"ram": 1}, symbols={str(i): (i, i) for i in range(5000)})
    assert_short(board, "sections={'ram': 1}")
    assert_short(Profile(tuple(Cost(None, "k", "forward", 2.0) for _ in range(500))), "500 calls")


def test_a_comparison_is_a_line_with_its_memory() -> None:
    (row, *_) = whet.compare(tiny.mlp(), (X,), ["full"])
    assert_short(row, "'full, no passes'", f"{kib(row.memory['ram'])} of RAM")


def test_a_search_shows_no_evidence() -> None:
    outcome = Outcome(1.0, 50.0, 1)
    gains = Contributions("accuracy", (0.0,) * 500, {(i, 1.0): 0.0 for i in range(500)})
    finalists = {str(i): Finalist(Candidate(i), 1, outcome) for i in range(100)}
    scheme = Scheme([Rule("*")] * 400, name="auto-256K")
    row = Row(1 << 18, Candidate(3), 1000, 1.0, outcome, finalists, scheme)
    assert_short(gains, "accuracy", "500 weights")
    assert_short(SearchReport((row,), gains, {}), "256.0 KiB", "accuracy")
    assert len(repr(row)) < 600


def texts(html: str) -> list[str]:
    """What a reader of the table sees; a parser that finds anything but a table fails."""
    root = ElementTree.fromstring(html)
    assert {e.tag for e in root.iter()} <= {"table", "caption", "tr", "th", "td"}
    return [e.text or "" for e in root.iter() if e.text and e.text.strip()]


def test_a_notebook_shows_what_trains_and_what_it_takes(large: Program) -> None:
    shown = texts(large._repr_html_())
    assert "whet program net" in shown
    pairs = dict(zip(shown[1::2], shown[2::2], strict=True))
    assert pairs["target"] == "host" and pairs["dtype"] == "float32" and pairs["scheme"] == "full"
    assert pairs["RAM"].startswith(kib(large.memory["ram"]) + ": ")
    names = list(large.trained)
    assert pairs["trains"] == ", ".join([*names[:6], f"and {len(names) - 6} others"])


def test_names_of_a_model_are_text_in_a_notebook() -> None:
    model = nn.Sequential()
    model.add_module(HOSTILE, nn.Linear(5, 3))
    scheme = Scheme([Rule("*")], name=HOSTILE + "\x1b[31m")
    program = whet.compile(model.eval(), (X,), update=scheme)
    report = program.check(1)
    for html in (program._repr_html_(), report._repr_html_()):
        assert "<script" not in html and "\x1b" not in html
        assert any(HOSTILE in text for text in texts(html))
    assert "\x1b" not in repr(program)
