"""What the page about the memory of a language model's step says, from its own records."""

from __future__ import annotations

import pytest

from benchmarks.common.lines import kept
from benchmarks.llm.memory import EAGER, FORMS, HERE, MIB, page

RESULTS = {r["form"]: r for r in kept(HERE / "memory.jsonl")}


def test_the_page_is_made_of_the_records() -> None:
    assert RESULTS.keys() == {*FORMS, EAGER}
    assert (HERE / "memory.md").read_text() == page([*RESULTS.values()])


def test_a_step_with_the_weights_as_shipped_fits_in_180_mib() -> None:
    own = RESULTS["as shipped"]
    assert own["peak"] * 1024 < 180 * MIB < RESULTS["int8"]["peak"] * 1024
    assert own["ram"] + own["flash"] < own["peak"] * 1024 < own["ram"] + own["flash"] + 5 * MIB


@pytest.mark.parametrize("form", ["fp32", "as shipped"])
def test_the_program_has_the_losses_of_pytorch(form: str) -> None:
    assert RESULTS[form]["losses"] == pytest.approx(RESULTS[EAGER]["losses"], rel=1e-6)
