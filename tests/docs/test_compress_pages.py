"""The pages of the compression study: what the kept results give, and what they must show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.common.results import read
from benchmarks.compress import flowers, lenets, structured

PAGES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "structured": (structured, lambda: structured.kept(structured.HERE / "structured.jsonl")),
    "flowers": (flowers, lambda: flowers.kept(flowers.HERE / "flowers.jsonl")),
    "lenets": (lenets, lambda: read(lenets.RESULTS)),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_made_from_what_is_kept(name: str) -> None:
    study, kept = PAGES[name]
    assert (study.HERE / f"{name}.md").read_text() == study.page(kept())


def test_a_microcontroller_saves_in_proportion_to_what_was_removed() -> None:
    """Of activations, and of weights and products, which fall with the square."""
    found = {
        (r["net"], r["dtype"], r["removed"]): r
        for r in structured.kept(structured.HERE / "structured.jsonl")
    }
    assert len(found) == 18
    for (net, dtype, removed), r in found.items():
        whole = found[net, dtype, 0.0]
        if removed:
            left = 1 - removed
            assert left**2 < r["parameters"] / whole["parameters"] < 1.1 * left
            assert 0.3 * left < r["ram"] / whole["ram"] < 1.1 * left
            assert r["step"] / whole["step"] < 1.4 * left
