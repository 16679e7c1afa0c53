"""The page about LLaMA-2-7B is what was planned and measured."""

import json

import pytest

from benchmarks.llm.plan7b import (
    LARGE,
    LLAMA_2_7B,
    PAGE,
    RESULTS,
    SMALL,
    SMOLLM2_135M,
    page,
    planned,
)
from whet.passes.machine import Machine


def test_the_page_is_up_to_date() -> None:
    results = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == page(results)
    assert [row["update"] for row in results["large"]] == [case.update for case in LARGE]
    for row in results["large"]:
        assert row["parameters"] == 6_738_415_616
        assert row["seconds"] == pytest.approx(sum(row["parts"].values()))


@pytest.mark.slow
def test_the_plan_is_that_of_the_page() -> None:
    """A better planner may change it: run python -m benchmarks.llm.plan7b --plan."""
    results = json.loads(RESULTS.read_text())
    (kept,) = (
        row for row in results["large"] if (row["optimizer"], row["frozen"]) == ("SGD", "q4_1")
    )
    case = next(case for case in LARGE if (case.optimizer, case.frozen) == ("SGD", "q4_1"))
    now = planned(case, LLAMA_2_7B, Machine(**results["machine"]))
    assert now["memory"]["frozen"] == kept["memory"]["frozen"]
    assert now["memory"]["ram"] == pytest.approx(kept["memory"]["ram"], rel=0.05)
    assert now["seconds"] == pytest.approx(kept["seconds"], rel=0.05)


@pytest.mark.slow
def test_the_small_plan_is_that_of_the_page() -> None:
    results = json.loads(RESULTS.read_text())
    case, kept = SMALL[0], results["small"][0]
    assert (kept["update"], kept["optimizer"]) == (case.update, case.optimizer)
    now = planned(case, SMOLLM2_135M, Machine(**results["machine"]))
    assert now["memory"]["arena"] == kept["memory"]["arena"]
