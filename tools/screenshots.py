"""Take pictures of a page in headless Chromium: wide and narrow, light and dark.

    python tools/screenshots.py report.html pictures/
    python tools/screenshots.py --serve site/index.html pictures/         after `make docs`

With --serve, a server on this machine gives out the folder of the page, which the search of a site
needs. Without it the page is opened as a file. Errors that the page prints to its console end the
program.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium() -> str | None:
    """The browser of the system, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield found
        found.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which a folder can be read while this lasts."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def opened(
    running: Any, page: Path, size: str, theme: str, at: str | None = None
) -> Iterator[tuple[Any, list[str]]]:
    """The page in a window, and what goes wrong there: errors, and requests to the network.

    `at` is the address of a server that has the folder of the page, or None to open the file.
    """
    own = ("file:", "data:", "blob:") if at is None else ("data:", "blob:", at)
    width, height = SIZES[size]
    context = running.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, has_touch=size == "phone"
    )
    tab, wrong = context.new_page(), []
    tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
    tab.goto(page.resolve().as_uri() if at is None else at + page.name)
    yield tab, wrong
    context.close()


def take(page: Path, folder: Path, at: str | None = None) -> list[str]:
    """Write the pictures; what went wrong on the way."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with browser() as running:
        for size in SIZES:
            for theme in THEMES:
                with opened(running, page, size, theme, at) as (tab, wrong):
                    name = f"{page.stem}-{size}-{theme}"
                    tab.screenshot(path=folder / f"{name}.png")
                    tab.screenshot(path=folder / f"{name}-whole.png", full_page=True)
                    found += [f"{name}: {words}" for words in wrong]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--serve", action="store_true", help="open the page by a server")
    words = parser.parse_args()
    with served(words.page.parent) if words.serve else nullcontext() as at:
        if wrong := take(words.page, words.folder, at):
            sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
