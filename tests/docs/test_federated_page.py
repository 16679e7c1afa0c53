"""The page of the federated study is what its records say."""

from __future__ import annotations

import statistics
import sys

from examples import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are run from there

from benchmarks.common.results import read
from benchmarks.federated.fashion import RATE, RATES
from benchmarks.federated.page import curves, page

FOLDER = ROOT / "benchmarks" / "federated"
RECORDS = read(FOLDER / "results.jsonl.gz")


def test_the_page_and_the_picture_are_made_of_the_records() -> None:
    assert (FOLDER / "README.md").read_text() == page(RECORDS)
    assert (FOLDER / "rounds.svg").read_text() == curves(RECORDS)


def of(split: str, rate: float) -> list[list[float]]:
    """Accuracies by round, for each seed."""
    words = {"study": "fashion", "split": split, "strategy": "fedavg", "engine": "loop"}
    found = [r for r in RECORDS if all(r.get(k) == v for k, v in words.items())]
    return [r["accuracy"] for r in found if r["rate"] == rate]


def test_clients_that_are_alike_come_within_a_point_of_training_in_one_place() -> None:
    """Of the best round at the best rate there, chosen by the test pictures."""
    best = max(
        statistics.mean(max(row) for row in rows) for rate in RATES if (rows := of("central", rate))
    )
    assert statistics.mean(row[-1] for row in of("iid", RATE)) > best - 0.01


def test_people_gain_by_training_the_global_model_on() -> None:
    found = [r["accuracy"] for r in RECORDS if r["study"] == "watch"]

    def mean(way: str) -> float:
        return statistics.mean(v for row in found for v in row[way].values())

    assert mean("factory") < mean("together") < mean("together, then alone")
