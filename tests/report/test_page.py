"""The page of a report: its data is the plan, and nothing in it leads outside."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

import tiny
import whet
from pages import Page
from whet.emit.program import Program
from whet.errors import BuildError, WhetError
from whet.ir import Role
from whet.report import kib
from whet.report.kept import kept_buffers
from whet.report.layers import gradient_buffers
from whet.report.page import Extras, html_page
from whet.report.page.data import KINDS


@pytest.fixture(scope="module")
def convnet() -> Program:
    x, _ = next(tiny.images())
    model = tiny.convnet()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return whet.compile(model, (x,), optimizer=sgd, update="full", ram="64K")


@pytest.fixture(scope="module")
def page(convnet: Program) -> Page:
    return Page(html_page(convnet, Extras(budget=64 << 10)))


def test_blocks_are_the_plan(convnet: Program, page: Page) -> None:
    plan, (shown,) = convnet.plans["train_step"], page.data["plans"]
    keys = ("offset", "bytes", "first", "last")
    found = [tuple(block[key] for key in keys) for block in shown["blocks"]]
    assert found == [(b.offset, b.bytes, b.first, b.last) for b in plan.buffers]
    assert [b["name"] for b in shown["blocks"]] == [b.values[0].name for b in plan.buffers]
    assert (shown["arena"], shown["bound"], shown["peak"]) == (
        plan.arena, plan.lower_bound, plan.peak,
    )  # fmt: skip


def test_blocks_of_one_time_do_not_overlap(page: Page) -> None:
    (shown,) = page.data["plans"]
    blocks, compared = shown["blocks"], 0
    for i, a in enumerate(blocks):
        assert a["offset"] + a["bytes"] <= shown["arena"]
        for b in blocks[:i]:
            if a["first"] <= b["last"] and b["first"] <= a["last"]:
                compared += 1
                below = a["offset"] + a["bytes"] <= b["offset"]
                assert below or b["offset"] + b["bytes"] <= a["offset"], (a["name"], b["name"])
    assert compared > 20


def test_the_arena_and_what_is_beside_it_are_all_ram(convnet: Program, page: Page) -> None:
    (shown,), memory = page.data["plans"], convnet.memory
    beside: dict[str, int] = {}
    for block in shown["resident"]:
        beside[block["kind"]] = beside.get(block["kind"], 0) + block["bytes"]
    assert (beside["weight"], beside["state"]) == (memory["trained"], memory["state"])
    assert sum(beside.values()) + shown["arena"] == memory["ram"] == shown["ram"]
    assert shown["room"] - shown["arena"] == (64 << 10) - memory["ram"] > 0


def test_kinds_are_those_of_the_plan(convnet: Program, page: Page) -> None:
    plan, (shown,) = convnet.plans["train_step"], page.data["plans"]
    by_kind: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for block in shown["blocks"]:
        by_kind[block["kind"]].add(block["name"])
    scratch = {v.name for v in plan.workspace.values()}
    assert by_kind["scratch"] == scratch
    gradients = {b.values[0].name for b in gradient_buffers(plan)} - scratch
    assert by_kind["parameter"] == gradients and by_kind["cotangent"]
    assert by_kind["kept"] <= {b.values[0].name for b in kept_buffers(plan)} and by_kind["kept"]


def test_reasons_name_who_reads(page: Page) -> None:
    (shown,) = page.data["plans"]
    ops = {step["op"] for step in shown["steps"]}
    kept = [block for block in shown["blocks"] if block["kind"] == "kept"]
    for block in kept:
        words, _, reader = block["why"].partition(": ")
        assert words == "the backward pass reads it" and reader.split()[0].strip(",") in ops
        late = [i for i in block["reads"] if i > shown["loss"]]
        assert late and shown["steps"][late[0]]["op"] == reader.split()[0].strip(",")
    assert len(kept) > 2


def test_steps_have_the_lines_of_the_graph_and_of_model_c(convnet: Program, page: Page) -> None:
    (shown,) = page.data["plans"]
    nodes = convnet.entries["train_step"].nodes
    assert len(shown["steps"]) == len(nodes)
    text = convnet.files["model.c"]
    assert isinstance(text, bytes)
    written = " ".join(text.decode().split())
    start = written.index(" train_step(")
    for step, node in zip(shown["steps"], nodes, strict=True):
        assert step["ir"].startswith(f"%{node.out.name}")
        assert bool(step["c"]) == (node.op.call(node) is not None)
        if step["c"]:  # and in this order
            start = written.index(" ".join(step["c"].split()), start)


def test_phases_and_layers(convnet: Program, page: Page) -> None:
    (shown,) = page.data["plans"]
    phases = [step["phase"] for step in shown["steps"]]
    assert "forward" not in phases[shown["loss"] + 1 :]
    assert set(phases) >= {"forward", "backward", "update"}
    names = [row[0] for row in shown["layers"]]
    used = {names[i] for step in shown["steps"] for i in step["layers"]}
    assert {"stem", "depthwise", "grouped", "pool", "head"} <= used
    leaves = convnet.entries["train_step"].leaves_of(Role.PARAM)
    assert len(leaves) == sum(block["kind"] == "weight" for block in shown["resident"])


def test_nothing_is_loaded_from_anywhere(convnet: Program, page: Page) -> None:
    text = html_page(convnet)
    assert not re.search(r"https?:|//[a-z]|@import|\bfetch\(|XMLHttpRequest|url\((?!#)", text)
    links = [value for _, key, value in page.attributes if key in ("href", "src", "action")]
    assert links and all(link.startswith("#") for link in links)
    assert page.tags["link"] == page.tags["img"] == page.tags["iframe"] == 0
    assert page.tags["script"] == 2 and page.tags["style"] == 1
    policy = [value for tag, key, value in page.attributes if (tag, key) == ("meta", "content")]
    assert any("default-src 'none'" in value for value in policy)


def test_the_same_program_gives_the_same_page(convnet: Program) -> None:
    assert html_page(convnet) == html_page(convnet)


def test_identifiers_are_unique_and_links_lead_somewhere() -> None:
    x, _ = next(tiny.vectors())
    program = whet.compile(tiny.mlp(), (x,), update="full")
    history = {"loss": [2.0, 1.0], "val_accuracy": [0.4, 0.6]}
    page = Page(html_page(program, Extras(without={"reorder": 9999}, history=history)))
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    links = [value for tag, key, value in page.attributes if (tag, key) == ("a", "href")]
    assert {link[1:] for link in links} <= set(ids)
    assert [link[1:] for link in links] == [
        "memory", "scheme", "layers", "passes", "energy", "training", "text",
    ]  # fmt: skip


def test_another_scheme_and_passes_by_name(convnet: Program, tmp_path: Path) -> None:
    path = convnet.report(tmp_path / "r.html", against="last", without=["reorder"])
    page = Page(path.read_text(encoding="utf-8"))
    ours, other = page.data["plans"]
    assert [ours["label"], other["label"]] == ["full", "last"]
    assert other["arena"] < ours["arena"]
    arena = convnet.source.without(convnet, ["reorder"])["reorder"].memory["arena"]
    words = " ".join(page.texts["text"])
    assert arena > ours["arena"] and "without reorder" in words
    assert f"{kib(arena)}  {arena / ours['arena']:.2f}x" in words


def test_a_report_without_a_path_is_text(convnet: Program) -> None:
    assert convnet.report().startswith("net: ") and "<" not in convnet.report()


def test_a_page_that_cannot_be_written_is_said(convnet: Program, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot write"):
        convnet.report(tmp_path / "no folder" / "r.html")


def test_without_matplotlib_the_error_says_what_to_install(
    convnet: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(WhetError, match=r"pip install matplotlib"):
        html_page(convnet)
