"""The page that learns, in headless Chromium: draw, train, and the accuracy rises."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import screenshots
import whet
from benchmarks.wasm.chromium import FLAGS
from whet.demo import web
from whet.emit.program import Program
from whet.errors import BuildError, DataError
from whet.targets.wasm.project import Memory

SIDE, CLASSES = 24, 3


def small() -> nn.Module:
    """Its first layer is frozen, so that the page keeps what that makes of a picture."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(144, CLASSES),
    )  # fmt: skip
    model[0].requires_grad_(False)
    return model


@pytest.fixture(scope="module")
def program() -> Program:
    return web.compiled(small(), SIDE, 0.005)


def test_what_the_page_knows_of_memory_is_the_plan(program: Program) -> None:
    found = web.description(program, "words")
    assert (found["side"], found["classes"], found["words"]) == (SIDE, CLASSES, "words")
    parts = dict(found["memory"])
    assert sum(parts.values()) == Memory.of(program).initial
    assert parts["trained"] == program.memory["trained"] and min(parts.values()) > 0
    plan = found["plan"]
    assert all(0 <= b["offset"] <= plan["arena"] - b["bytes"] for b in plan["blocks"])
    assert 0 < plan["loss"] < plan["calls"]


def test_other_networks_are_refused() -> None:
    grey = whet.compile(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), (torch.zeros(1, 1, 8, 8),))
    with pytest.raises(DataError, match="one square picture in colour"):
        web.description(grey, "")


def test_a_folder_keeps_what_is_not_the_page(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(program: Program, folder: Path) -> Path:
        (folder / "package").mkdir()
        (folder / "package" / "index.js").write_text("made")
        return folder / "package" / "net.wasm"

    monkeypatch.setattr(web, "build", build)
    own = {"c/a.c": "of the user", "report.txt": "too", "net/index.js": "and this"}
    for name, text in own.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(BuildError, match="has net, which is not this demo's"):
        web.write_page(program, tmp_path, "words")
    assert {p.name for p in tmp_path.rglob("*.*")} == {"a.c", "report.txt", "index.js"}
    (tmp_path / "net").rename(tmp_path / "other")
    for words in ("first", "second"):  # the second time it replaces its own
        web.write_page(program, tmp_path, words)
        assert f'"{words}"' in (tmp_path / "program.js").read_text()
    assert (tmp_path / "net" / "index.js").read_text() == "made"
    assert {p.name for p in tmp_path.iterdir()} == {*web.FILES, "net", "c", "other", "report.txt"}
    assert all((tmp_path / n).read_text() == own[n] for n in ("c/a.c", "report.txt"))


LOOP = """
const waiting = new Map(), said = [];
let count = 0;
Object.assign(globalThis, {
  onmessage: null,
  postMessage: (message) => said.push(message.kind),
  setTimeout: (call) => { waiting.set(++count, call); return count; },
  clearTimeout: (id) => waiting.delete(id),
});
await import("./worker.js");
const tell = (data) => globalThis.onmessage({ data });
tell({ kind: "add", x: new Float32Array(1), label: 0, held: false });
const train = (on) => tell({ kind: "train", on, rate: 0.1 });
const sizes = [waiting.size];
for (const on of [true, false, true, true]) { train(on); sizes.push(waiting.size); }
for (const [id, call] of waiting) { waiting.delete(id); call(); break; }
sizes.push(waiting.size);
train(false);
console.log(JSON.stringify({ sizes, said }));
"""
NET = """
export const ENTRIES = { train_step: { arrays: [{ elements: 1 }, { elements: 1 }] } };
export const load = async () => ({ memoryBytes: 1, predict: () => [1, 0], run: () => [[0.5]] });
"""


def test_stop_and_train_at_once_make_no_second_loop(tmp_path: Path) -> None:
    """Chunks of training that wait to be run, after every message."""
    shutil.copyfile(Path(web.__file__).parent / "page" / "worker.js", tmp_path / "worker.js")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "index.js").write_text(NET)
    (tmp_path / "main.js").write_text(LOOP)
    done = subprocess.run(["node", "main.js"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sizes"] == [0, 1, 0, 1, 1, 1] and "error" not in found["said"]


@pytest.fixture(scope="module")
def site(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = web.write_page(program, tmp_path_factory.mktemp("site"), "A small network.")
    with web.server(folder, 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/"
        serving.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert screenshots.chromium(), "chromium not found: `make system-browser` installs it"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=screenshots.chromium(), args=[*screenshots.FLAGS, *FLAGS]
        )
        yield found
        found.close()


@pytest.fixture
def page(site: str, browser: Any) -> Iterator[Any]:
    """The page, loaded; what goes wrong there fails the test, and so does a request after that."""
    context = browser.new_context(permissions=["camera"], accept_downloads=True)
    tab, wrong = context.new_page(), []
    tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto(site)
    tab.get_by_text("Add pictures to two classes").wait_for()
    tab.on(
        "request",
        lambda r: None if r.url.startswith(("blob:", "data:")) else wrong.append(r.url),
    )
    yield tab
    context.close()
    assert wrong == []


def draw(page: Any, upright: bool, shift: int) -> None:
    box = page.locator("#draw canvas").bounding_box()
    x, y = box["x"] + 144 + shift, box["y"] + 144 + shift
    along = (0, 100) if upright else (100, 0)
    page.mouse.move(x - along[0], y - along[1])
    page.mouse.down()
    page.mouse.move(x + along[0], y + along[1], steps=4)
    page.mouse.up()


def counted(page: Any, index: int) -> int:
    return int(page.locator(".class").nth(index).locator(".shots canvas").count())


def part(page: Any, name: str) -> float:
    found = re.match(r"(\d+) %", page.locator(name).inner_text())
    return int(found[1]) / 100 if found else float("nan")


def wait_for_steps(page: Any, count: int) -> None:
    steps = "Number(document.querySelector('#steps').innerText.replaceAll(',', ''))"
    page.wait_for_function(f"{steps} > {count}")


def trained(page: Any) -> None:
    for i in range(12):
        draw(page, upright=i % 2 == 0, shift=6 * (i - 6))
        page.get_by_label(f"Add pictures to class {1 + i % 2}").click()
    page.get_by_role("button", name="Train").click()
    page.wait_for_function(
        "document.querySelector('#after').innerText === '100 %'"
        " && Number(document.querySelector('#loss').innerText) < 0.1"
        " && document.querySelectorAll('#curve path').length === 2"
    )
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    page.wait_for_function("document.querySelector('#after').innerText === '100 %'")


def test_it_learns_drawings_and_the_weights_go_on_elsewhere(
    page: Any, program: Program, tmp_path: Path
) -> None:
    assert page.locator("#start").is_disabled()
    trained(page)
    assert (counted(page, 0), counted(page, 1), counted(page, 2)) == (6, 6, 0)
    assert part(page, "#before") < 1 and part(page, "#after") == 1
    assert float(page.locator("#loss").inner_text()) < 0.5
    assert page.locator("#curve path").count() == 2
    draw(page, upright=True, shift=0)
    page.wait_for_function("document.querySelectorAll('#guess tr').length === 3")
    shares = [float(m.get_attribute("value")) for m in page.locator("#guess meter").all()]
    assert sum(shares[::2]) == pytest.approx(1) and shares[1] > shares[3]
    with page.expect_download() as download:
        page.get_by_role("button", name="Export weights").click()
    download.value.save_as(tmp_path / "checkpoint.bin")
    before = program.load()
    after = program.load()
    after.load(tmp_path / "checkpoint.bin")
    x = np.zeros((1, 3, SIDE, SIDE), np.float32)
    assert not np.array_equal(before.predict(x), after.predict(x))
    page.get_by_role("button", name="Forget").click()
    page.wait_for_function("document.querySelector('#steps').innerText === '0'")
    assert part(page, "#after") == part(page, "#before")
    page.locator("#weights").set_input_files(tmp_path / "checkpoint.bin")
    page.wait_for_function("document.querySelector('#after').innerText === '100 %'")
    (tmp_path / "other").write_bytes(b"WHET, but not really")
    page.locator("#weights").set_input_files(tmp_path / "other")
    page.get_by_text("TRUNCATED").wait_for()


def test_camera_and_files(page: Any, tmp_path: Path) -> None:
    page.get_by_label("camera", exact=True).check()
    page.wait_for_function("document.querySelector('video').videoWidth > 0")
    page.get_by_label("Add pictures to class 1").click()
    page.wait_for_function("document.querySelectorAll('.shots canvas').length === 8")
    assert page.locator(".shots canvas.held").count() == 2
    from PIL import Image

    for i in range(2):
        Image.new("RGB", (40, 30), (200, 90 * i, 0)).save(tmp_path / f"{i}.png")
    page.get_by_label("files", exact=True).check()
    assert page.evaluate("document.querySelector('video').srcObject") is None
    with page.expect_file_chooser() as chooser:
        page.get_by_label("Add pictures to class 2").click()
    chooser.value.set_files([tmp_path / "0.png", tmp_path / "1.png"])
    page.wait_for_function("document.querySelectorAll('.shots canvas').length === 10")
    assert counted(page, 1) == 2 and page.locator("#start").is_enabled()
    drop = """async (url) => {
      const bytes = await (await fetch(url)).blob();
      const data = new DataTransfer();
      data.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
      const target = document.querySelectorAll(".class")[2];
      target.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    page.evaluate(drop, page.evaluate("document.querySelector('#files img').src"))
    page.wait_for_function("document.querySelectorAll('.shots canvas').length === 11")
    (tmp_path / "text.png").write_text("no picture")
    with page.expect_file_chooser() as chooser:
        page.get_by_label("Add pictures to class 2").click()
    chooser.value.set_files(tmp_path / "text.png")
    page.get_by_text("text.png is no picture").wait_for()


@pytest.mark.slow
def test_a_camera_that_shows_nothing_adds_nothing(page: Any) -> None:
    denied = "async () => { throw Error('denied'); }"
    page.evaluate(f"() => {{ navigator.mediaDevices.getUserMedia = {denied}; }}")
    page.get_by_label("camera", exact=True).check()
    page.get_by_text("denied").wait_for()
    page.get_by_label("Add pictures to class 1").click()
    page.get_by_text("the camera shows nothing yet").wait_for()
    assert counted(page, 0) == 0 and page.locator("#start").is_disabled()


@pytest.mark.slow
def test_all_of_it_by_keyboard(page: Any) -> None:
    page.get_by_label("Add pictures to class 1").focus()
    page.keyboard.press("Enter")
    page.get_by_text("there is no drawing yet").wait_for()
    for index, keys in enumerate(("ArrowUp", "ArrowLeft")):
        page.locator("#draw canvas").focus()
        for key in (" ", *[keys] * 8, " "):
            page.keyboard.press(key)
        page.get_by_label(f"Add pictures to class {index + 1}").focus()
        page.keyboard.press("Space")
    page.wait_for_function("!document.querySelector('#start').disabled")
    page.locator("#start").focus()
    page.keyboard.press("Enter")
    wait_for_steps(page, 5)


@pytest.mark.slow
@pytest.mark.parametrize("theme", screenshots.THEMES)
def test_a_phone_shows_all_of_it(site: str, browser: Any, theme: str) -> None:
    width, height = screenshots.SIZES["phone"]
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    tab.goto(site)
    tab.get_by_text("Add pictures to two classes").wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (theme == "light")
    small = tab.evaluate(
        "[...document.querySelectorAll('button')].filter((b) => b.offsetHeight < 36).length"
    )
    assert small == 0, "buttons that a finger misses"
    tab.close()
