"""The pages of the studies of language models: what the kept results give, and what they show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.common.lines import kept
from benchmarks.llm import gradients, quality, step

FILES: dict[str, Callable[[], str]] = {
    "README.md": lambda: step.page(kept(step.RESULTS)),
    "step.svg": lambda: step.picture(kept(step.RESULTS)),
    "quality.md": lambda: quality.page(kept(quality.RESULTS)),
    "quality.svg": lambda: quality.picture(kept(quality.RESULTS)),
    "gradients.md": lambda: gradients.page(kept(gradients.RESULTS)),
}


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_made_from_what_is_kept(name: str) -> None:
    assert (step.HERE / name).read_text() == FILES[name]()


def test_gradients_are_pytorchs() -> None:
    records = kept(gradients.RESULTS)
    assert records
    for r in records:
        assert r["gradient"] <= max(1e-4, 3 * r["torch_gradient"]), r
        assert r["parameter"] <= max(1e-3, 3 * r["torch_parameter"]), r


def test_a_rate_is_looked_for_next_to_the_best() -> None:
    rates = (1.0, 2.0, 3.0, 4.0)
    assert quality.next_rate({}, 2.0, rates) == 2.0
    assert quality.next_rate({2.0: 0.5}, 2.0, rates) == 1.0
    assert quality.next_rate({2.0: 0.5, 1.0: 0.6}, 2.0, rates) == 3.0
    assert quality.next_rate({2.0: 0.5, 1.0: 0.6, 3.0: 0.4}, 2.0, rates) == 4.0
    assert quality.next_rate({2.0: 0.5, 1.0: 0.6, 3.0: 0.4, 4.0: 0.4}, 2.0, rates) is None
    assert quality.next_rate({1.0: 0.5, 2.0: 0.6}, 1.0, rates) is None
