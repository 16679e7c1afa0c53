"""Train a program's module in a page of headless Chromium."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from whet.targets.wasm.node import Node

SITE = "http://site.test/"  # answered from a folder; nothing is asked of a network
KINDS = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm",
         ".css": "text/css", ".json": "application/json"}  # fmt: skip
FLAGS = ("--no-sandbox", "--disable-gpu", "--use-fake-device-for-media-stream",
         "--use-fake-ui-for-media-stream")  # fmt: skip
TRAIN = """
    async ({ x, y, steps }) => {
      const { ENTRIES, load } = await import("/index.js");
      const network = await load();
      const arrays = ENTRIES.train_step.arrays.map(({ type }, i) => {
        const bytes = Uint8Array.from(atob([x, y][i]), (c) => c.charCodeAt(0));
        return new globalThis[type](bytes.buffer);
      });
      const losses = [], times = [];
      for (let step = 0; step < steps; step++) {
        const start = performance.now();
        losses.push(network.trainStep(...arrays));
        times.push(performance.now() - start);
      }
      return { losses, times,
               sum: network.save().reduce((sum, byte) => (sum * 31 + byte) >>> 0, 7) };
    }
"""


@contextmanager
def site(folder: Path) -> Iterator[Any]:
    """A browser's page at the root of a folder, which is served to it as a site."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")

    def answer(route: Any) -> None:
        name = route.request.url.removeprefix(SITE).partition("?")[0] or "index.html"
        path = folder / name
        if not path.is_file():
            route.fulfill(status=200 if name == "blank.html" else 404, body="<!doctype html>")
            return
        kind = KINDS.get(path.suffix, "application/octet-stream")
        route.fulfill(body=path.read_bytes(), content_type=kind)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        page = browser.new_page()
        page.route("**/*", answer)
        yield page
        browser.close()


def trained(node: Node, arrays: tuple[np.ndarray, np.ndarray], steps: int) -> dict[str, Any]:
    """Losses and milliseconds of steps on arrays as they are stored, and a checksum at the end."""
    x, y = (base64.b64encode(array.tobytes()).decode() for array in arrays)
    with site(node.module.parent) as page:
        page.goto(SITE + "blank.html")
        found = page.evaluate(TRAIN, {"x": x, "y": y, "steps": steps})
    return dict(found)


def checksum(saved: bytes) -> int:
    """What a page says of a checkpoint with these bytes."""
    total = 7
    for byte in saved:
        total = (total * 31 + byte) & 0xFFFFFFFF
    return total
