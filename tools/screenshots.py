"""Take pictures of a page in headless Chromium: wide and narrow, light and dark.

    python tools/screenshots.py report.html pictures/
    python tools/screenshots.py --serve site/index.html pictures/   after `make docs`
    python tools/screenshots.py http://localhost:8000/ pictures/    beside `whet demo web`

With --serve, a server on this machine gives out the folder of the page, which the search of a site
needs. Errors that the page prints to its console end the program.
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
def served(page: Path) -> Iterator[str]:
    """The address of the page, on a server that has its folder."""
    handler = functools.partial(Quiet, directory=str(page.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{page.name}"
        server.shutdown()


@contextmanager
def opened(
    running: Any, page: Path | str, size: str, theme: str
) -> Iterator[tuple[Any, list[str]]]:
    """The page in a window, and what goes wrong there: errors, and requests to the network."""
    width, height = SIZES[size]
    context = running.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, has_touch=size == "phone"
    )
    tab, wrong = context.new_page(), []
    tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    address = page if isinstance(page, str) else page.resolve().as_uri()
    own = ("data:", "blob:", address.rpartition("/")[0] if isinstance(page, str) else "file:")
    tab.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
    tab.goto(address)
    tab.wait_for_load_state("networkidle")
    yield tab, wrong
    context.close()


def take(page: Path | str, folder: Path) -> list[str]:
    """Write the pictures; what went wrong on the way."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with browser() as running:
        for size in SIZES:
            for theme in THEMES:
                with opened(running, page, size, theme) as (tab, wrong):
                    name = f"{Path(page).stem if Path(page).suffix else 'page'}-{size}-{theme}"
                    tab.screenshot(path=folder / f"{name}.png")
                    tab.screenshot(path=folder / f"{name}-whole.png", full_page=True)
                    found += [f"{name}: {words}" for words in wrong]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=lambda w: w if w.startswith("http") else Path(w))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--serve", action="store_true", help="open a file by a server")
    words = parser.parse_args()
    with served(words.page) if words.serve else nullcontext(words.page) as page:
        if wrong := take(page, words.folder):
            sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
