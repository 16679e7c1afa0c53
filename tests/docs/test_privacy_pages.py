"""The pages of the privacy studies are what their kept results give."""

from __future__ import annotations

import sys

import pytest
from PIL import Image

from quoted import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are run from there

from benchmarks.common.results import read
from benchmarks.privacy.__main__ import commands
from benchmarks.privacy.leakage_cells import UPDATES
from benchmarks.privacy.leakage_page import Kept, page

FOLDER = ROOT / "benchmarks" / "privacy"


def test_the_page_of_leakage_is_what_the_results_give() -> None:
    """But for the line that names the processor."""
    kept = page(Kept(read(FOLDER / "leakage.jsonl.gz"))).splitlines()
    written = (FOLDER / "leakage.md").read_text().splitlines()
    assert kept[:2] == written[:2] and kept[3:] == written[3:]


def test_the_page_of_members_is_what_the_results_give() -> None:
    pytest.importorskip("dp_accounting")
    membership = pytest.importorskip("benchmarks.privacy.membership")
    size = membership.kept_size(membership.SIZES["full"])
    assert membership.page(size) == (FOLDER / "membership.md").read_text()


def test_the_picture_has_a_column_for_each_update() -> None:
    with Image.open(FOLDER / "sparse-clothes.png") as picture:
        assert picture.width == 2 * (32 * (1 + len(UPDATES)) + 2 * len(UPDATES))
        assert picture.height == 2 * (32 * 4 + 2 * 3)
    assert (FOLDER / "sparse-clothes.png").stat().st_size < 100_000


def test_one_command_runs_both_studies() -> None:
    assert commands("page", 2) == [
        ["-m", "benchmarks.privacy.leakage", "page"],
        ["-m", "benchmarks.privacy.membership", "page", "--small"],
    ]
    assert [c[1] for c in commands("all", 3)] == [
        "benchmarks.privacy.leakage", "benchmarks.privacy.membership",
    ]  # fmt: skip
    assert commands("leakage", 3) == [["-m", "benchmarks.privacy.leakage", "--workers", "3"]]
