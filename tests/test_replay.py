"""Some of the programs of tools/replay.py are what was accepted, to the byte.

`pytest tests/test_replay.py --accept` rewrites the golden files; then read the difference.
tests/emit/test_golden.py has the text of small ones.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import replay_cases
from golden import spelled, steady
from replay import contents

TOOLS = Path(__file__).parents[1] / "tools"

CASES = (
    "lenet", "lenet-adamw", "lenet-int8-m7", "tokens-train", "recurrent", "excite-int8-m7",
    "signals-int8-m7", "grouped-int8",
)  # fmt: skip


def golden_text(name: str) -> str:
    """The graph of the step, and checksums of all that was generated."""
    found = contents(replay_cases.program(name))
    texts = {path: steady(text) for path, text in found.items() if "weights." not in path}
    sums = [f"{hashlib.sha256(t.encode()).hexdigest()[:16]}  {path}" for path, t in texts.items()]
    return spelled(texts, ["train_step.ir"]) + "\n".join(["==== checksums", *sorted(sums), ""])


@pytest.mark.parametrize("name", CASES)
def test_programs_are_as_they_were_accepted(
    name: str, accepted: Callable[[str, str], None]
) -> None:
    accepted(f"replay/{name}.txt", golden_text(name))


@pytest.mark.slow
def test_this_commit_replays_without_a_difference() -> None:
    command = [sys.executable, TOOLS / "replay.py", "HEAD", "-k", "signals"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    assert "2 cases, " in done.stdout.splitlines()[-1]
