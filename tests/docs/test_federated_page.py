"""The page of the federated study is what its records say."""

from __future__ import annotations

import statistics
import sys

from examples import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are run from there

from benchmarks.common.results import read
from benchmarks.federated.page import curves, page

FOLDER = ROOT / "benchmarks" / "federated"
RECORDS = read(FOLDER / "results.jsonl.gz")


def test_the_page_and_the_picture_are_made_of_the_records() -> None:
    assert (FOLDER / "README.md").read_text() == page(RECORDS)
    assert (FOLDER / "rounds.svg").read_text() == curves(RECORDS)


def last(split: str) -> float:
    found = [r for r in RECORDS if r["study"] == "fashion" and r["split"] == split]
    plain = [r["accuracy"][-1] for r in found if (r["strategy"], r["engine"]) == ("fedavg", "loop")]
    return 100 * statistics.mean(plain)


def test_clients_that_are_alike_come_within_a_point_of_training_in_one_place() -> None:
    assert abs(last("iid") - last("central")) < 1.0


def test_people_gain_by_training_the_global_model_on() -> None:
    found = [r["accuracy"] for r in RECORDS if r["study"] == "watch"]

    def mean(way: str) -> float:
        return statistics.mean(v for row in found for v in row[way].values())

    assert mean("factory") < mean("together") < mean("together, then alone")
