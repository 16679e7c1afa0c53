"""The page of a report in headless Chromium: what is drawn, pinned, searched and typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny
import whet
from screenshots import SIZES, THEMES, browser, chromium, opened, take
from whet.emit.program import Program
from whet.report.energy import energy_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here; `make test-all` installs it"),
]


@pytest.fixture(scope="module")
def program() -> Program:
    x, _ = next(tiny.images())
    return whet.compile(tiny.convnet(norm=False), (x,), update="full")


@pytest.fixture(scope="module")
def page(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    return program.report(path, title="convnet", against="last", budget=64 << 10)


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def tab(running: Any, page: Path) -> Iterator[Any]:
    with opened(running, page, "desktop", "light") as (found, wrong):
        yield found
        assert wrong == []


def test_it_opens_without_errors_everywhere(page: Path, tmp_path: Path) -> None:
    assert take(page, tmp_path) == []
    assert len(list(tmp_path.glob("*.png"))) == 2 * len(SIZES) * len(THEMES)


@pytest.mark.parametrize("size", SIZES)
def test_the_page_is_as_wide_as_the_window(running: Any, page: Path, size: str) -> None:
    with opened(running, page, size, "light") as (tab, _):
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= SIZES[size][0]


def test_rectangles_are_the_plan_to_scale(tab: Any, program: Program) -> None:
    plan = program.plans["train_step"]
    boxes = tab.evaluate(
        "[...document.querySelectorAll('#plot-0 .block')].filter(r => r.style.display !== 'none')"
        ".map(r => ['x', 'y', 'width', 'height'].map(k => Number(r.getAttribute(k))))"
    )
    paper = tab.evaluate(
        "['x', 'y', 'width', 'height'].map(k => "
        "Number(document.querySelector('#plot-0 .paper').getAttribute(k)))"
    )
    assert len(boxes) == len(plan.buffers)
    step = paper[2] / (len(plan.graph.nodes) + 1)
    room = (64 << 10) - (program.memory["ram"] - plan.arena)  # the budget's line is the highest
    byte = paper[3] / (1.05 * max(room, plan.arena) if room < 3 * plan.arena else 1.05 * plan.arena)
    for b, (x, y, width, height) in zip(plan.buffers, boxes, strict=True):
        assert x == pytest.approx(paper[0] + step * b.first, abs=0.01)
        assert y == pytest.approx(paper[1] + paper[3] - byte * b.end, abs=0.01)
        assert width == pytest.approx(step * (b.last + 1 - b.first), abs=1.01)  # with the gap
        assert height == pytest.approx(max(byte * b.bytes, 1), abs=1.01)


def largest(program: Program) -> int:
    buffers = program.plans["train_step"].buffers
    return max(range(len(buffers)), key=lambda i: buffers[i].bytes)


def test_a_click_pins_a_block_and_escape_lets_it_go(tab: Any, program: Program) -> None:
    number = largest(program)
    block = program.plans["train_step"].buffers[number]
    tab.hover(f"#plot-0 [data-block='{number}']")
    assert block.values[0].name in tab.inner_text("#tip")
    tab.click(f"#plot-0 [data-block='{number}']")
    words = tab.inner_text("#inspector")
    assert block.values[0].name in words and f"{block.bytes:,} B" in words
    maker = program.plans["train_step"].graph.nodes[block.first]
    call = maker.op.call(maker)
    assert call is not None and f"{call.kernel}(" in words and f"%{maker.out.name}" in words
    tab.focus("#plot-0 svg.plan")
    tab.keyboard.press("Escape")
    assert tab.inner_text("#inspector h3").startswith("Step ")


def test_it_opens_at_the_peak_and_arrows_go_through_the_calls(tab: Any, program: Program) -> None:
    plan = program.plans["train_step"]
    total = len(plan.graph.nodes)
    assert tab.inner_text("#inspector h3") == f"Step {plan.peak + 1} of {total}, the peak"
    live = [b for b in plan.buffers if b.first <= plan.peak <= b.last]
    assert tab.locator("#inspector .live li").count() == len(live)
    tab.focus("#plot-0 svg.plan")
    tab.keyboard.press("Home")
    seen = [1]
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
        seen.append(int(tab.inner_text("#inspector h3").split()[1]))
    calls = [i + 1 for i, n in enumerate(plan.graph.nodes) if n.op.call(n) is not None]
    assert seen == [1, *[i for i in calls if i > 1][:3]]
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#plot-0 .outline").count() == 1


def test_search_and_legend_dim_what_is_not_meant(tab: Any, program: Program) -> None:
    shown = (
        "[...document.querySelectorAll('#plot-0 .block:not(.dim)')]"
        ".filter(r => r.style.display !== 'none').length"
    )
    everything = tab.evaluate(shown)
    tab.fill("#search", "depthwise")
    assert 0 < tab.evaluate(shown) < everything
    tab.fill("#search", "no such layer")
    assert tab.evaluate(shown) == 0
    tab.fill("#search", "")
    tab.click("[data-kind='kept']")
    assert tab.evaluate(shown) < everything
    tab.click("[data-kind='kept']")
    assert tab.evaluate(shown) == everything


def test_zoom_and_all_ram(tab: Any) -> None:
    width = "Number(document.querySelector('#plot-0 .block').getAttribute('width'))"
    before = tab.evaluate(width)
    tab.click("#zoom-in")
    assert tab.evaluate(width) > 1.3 * before
    tab.click("#fit")
    assert tab.evaluate(width) == pytest.approx(before)
    hidden = "[...document.querySelectorAll('#plot-0 .block')].filter(r => r.style.display).length"
    assert tab.evaluate(hidden) > 0
    tab.check("#ram")
    assert tab.evaluate(hidden) == 0


def test_typed_figures_change_the_energy(tab: Any, program: Program) -> None:
    found = energy_of(program.plans["train_step"])
    inputs = tab.locator("#energy-table input")
    for i in range(inputs.count()):
        inputs.nth(i).fill("0" if i < inputs.count() - 1 else "1000")
    spent = sum(found.macs.values()) * 1000
    words = tab.inner_text("#energy-table tr.total output >> nth=0")
    assert words == f"{float(f'{spent / 1e6:.3g}'):g} µJ"
    tab.click("#energy-reset")
    assert tab.inner_text("#energy-table tr.total output >> nth=0") != words


def test_the_theme_can_be_changed(tab: Any) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(color)
    tab.click("#theme")
    assert tab.evaluate(color) != before
