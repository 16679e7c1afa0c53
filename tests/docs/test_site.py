"""The documentation site builds without a warning, and everything that is linked is there."""

from __future__ import annotations

import logging
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

import whet
from examples import ROOT
from whet.cli.explain import pages as errors

pytestmark = pytest.mark.slow  # builds the whole site, once

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}


class Reader(HTMLParser):
    """The identifiers of a page, what it links to, and what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag, "") in given:
            self.loaded.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    assert config.validation.links.anchors == logging.WARNING, "these end a strict build"
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


def page(site: Path, name: str) -> Reader:
    return Reader((site / name).read_text())


def test_every_page_of_the_repository_is_there(site: Path) -> None:
    sources = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for source in [*sources, *(ROOT / "benchmarks").rglob("*.md")]:
        path = source.relative_to(ROOT).with_suffix(".html")
        if path.stem == "README":
            path = path.with_name("index.html")
        assert (site / path).is_file(), path


def test_all_links_lead_to_a_file_and_an_anchor(site: Path) -> None:
    """Those that the generator checks, and those that it makes."""
    read = {path: Reader(path.read_text()) for path in site.rglob("*.html")}
    assert len(read) > 60
    checked = 0
    for path, found in read.items():
        for link in found.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            file = (path.parent / target).resolve() if target else path
            assert file.is_file(), f"{path.relative_to(site)} links to {link}"
            if anchor and not anchor.startswith("__") and file in read:
                assert anchor in read[file].names, f"{path.relative_to(site)} links to {link}"
            checked += 1
    assert checked > 1000


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not [url for url in page(site, str(path)).loaded if "//" in url], path


def test_references_have_all_public_names(site: Path) -> None:
    found = page(site, "reference/whet.html").names
    assert {f"whet.{name}" for name in whet.__all__ if name != "errors"} <= found
    for name in ("models", "compress", "llm", "tinytl", "federated", "privacy"):
        module = __import__(f"whet.{name}", fromlist=["__all__"])
        names = page(site, f"reference/whet.{name}.html").names
        public = {n for n in module.__all__ if not isinstance(getattr(module, n), ModuleType)}
        for each in public:
            own = f"whet.labs.{name}.{each}.{each}"  # where the file has the same name
            assert names & {f"whet.{name}.{each}", own}, each
    for error in errors():
        assert (site / "reference" / "errors" / f"{error.code}.html").is_file()
    assert {"whet-compile", "whet-explain", "whet-fed-simulate"} <= page(
        site, "reference/options.html"
    ).names
