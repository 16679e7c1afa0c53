"""The pages of the studies of language models: what the kept results give, and what they show."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from benchmarks.common.lines import kept
from benchmarks.llm import contributions, gradients, quality, step

FILES: dict[str, Callable[[], str]] = {
    "README.md": lambda: step.page(kept(step.RESULTS)),
    "step.svg": lambda: step.picture(kept(step.RESULTS)),
    "quality.md": lambda: quality.page(kept(quality.RESULTS)),
    "quality.svg": lambda: quality.picture(kept(quality.RESULTS)),
    "gradients.md": lambda: gradients.page(kept(gradients.RESULTS)),
    "contributions.md": lambda: contributions.page(contributions.results()),
    "contributions.svg": lambda: contributions.picture(contributions.results()),
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


def test_value_projections_and_first_ffn_layers_gain_most() -> None:
    """A first FFN layer gains most, and a byte of a value projection."""
    layers = contributions.by_role(contributions.results())
    means = {role: statistics.mean(w["gain"] for w in of) for role, of in layers.items()}
    assert sorted(means, key=lambda role: means[role])[-2:] == ["value", "up"]
    by_byte = {role: means[role] / of[0]["elements"] for role, of in layers.items()}
    assert max(by_byte, key=lambda role: by_byte[role]) == "value"


def test_a_rate_is_looked_for_next_to_the_best() -> None:
    rates = (1.0, 2.0, 3.0, 4.0)
    assert quality.next_rate({}, 2.0, rates) == 2.0
    assert quality.next_rate({2.0: 0.5}, 2.0, rates) == 1.0
    assert quality.next_rate({2.0: 0.5, 1.0: 0.6}, 2.0, rates) == 3.0
    assert quality.next_rate({2.0: 0.5, 1.0: 0.6, 3.0: 0.4}, 2.0, rates) == 4.0
    assert quality.next_rate({2.0: 0.5, 1.0: 0.6, 3.0: 0.4, 4.0: 0.4}, 2.0, rates) is None
    assert quality.next_rate({1.0: 0.5, 2.0: 0.6}, 1.0, rates) is None
