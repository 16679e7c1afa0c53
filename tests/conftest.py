"""Options and settings that all tests share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest
from hypothesis import settings

from golden import GOLDEN

os.environ["WHET_UNTUNED"] = "1"  # programs are the same on a machine that was measured

settings.register_profile("whet", deadline=None)  # the first example pays for imports
settings.load_profile("whet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="rewrite tests/golden instead of failing"
    )


@pytest.fixture
def accepted(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Asserts that a text is the one in a file of tests/golden; `--accept` writes the file."""

    def compare(name: str, now: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--accept"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(now)
        assert path.read_text() == now

    return compare


def pytest_collection_finish() -> None:
    """What was imported stays: looking for garbage among it is a fifth of the time of an export."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many comparisons stand behind the tests of operators and of budgets."""
    totals = {"pairs": 0, "refused": 0, "hints": 0}
    left_out: dict[str, int] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, value in getattr(report, "user_properties", []):
                if key in totals:
                    totals[key] += value
                elif key == "left out":
                    left_out[value[0]] = left_out.get(value[0], 0) + value[1]
    if totals["pairs"]:
        reasons = ", ".join(f"{n} with {reason}" for reason, n in sorted(left_out.items()))
        terminalreporter.write_line(
            f"operators: {totals['pairs']:,} (op, sample) pairs compared with PyTorch, "
            f"{totals['refused']:,} refused as unsupported"
            + (f"; left out: {reasons}" if reasons else "")
        )
    if totals["hints"]:
        terminalreporter.write_line(
            f"budgets: {totals['hints']:,} hints offered, and all of them compiled"
        )
