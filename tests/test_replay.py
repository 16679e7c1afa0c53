"""Some of the programs of tools/replay.py are what was accepted, to the byte.

`pytest tests/test_replay.py --accept` rewrites the golden files; then read the difference.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOOLS = HERE.parent / "tools"
GOLDEN = HERE / "golden" / "replay"
sys.path.insert(0, str(TOOLS))

import replay_cases  # noqa: E402
from replay import contents  # noqa: E402

CASES = (
    "lenet", "lenet-adamw", "lenet-int8-m7", "tokens-train", "recurrent", "excite-int8-m7",
    "signals-int8-m7", "grouped-int8",
)  # fmt: skip
SPELLED = {"lenet-int8-m7": ("model.c", "model.h"), "grouped-int8": ("model.c",)}


NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")


def steady(content: bytes) -> str:
    """Text with numbers of a few digits: the last ones of a sum depend on the processor."""
    return NUMBER.sub(lambda match: f"{float(match[0]):.3g}", content.decode())


def golden(name: str) -> str:
    """The graph of the step, and checksums of all that was generated; of some, the text."""
    found = contents(replay_cases.program(name))
    texts = {path: steady(text) for path, text in found.items() if "weights." not in path}
    whole = ["train_step.ir", *SPELLED.get(name, ())]
    parts = [f"==== {path}\n{texts[path]}" for path in whole]
    sums = [f"{hashlib.sha256(t.encode()).hexdigest()[:16]}  {path}" for path, t in texts.items()]
    return "".join([*parts, "==== checksums\n", "\n".join(sorted(sums)), "\n"])


@pytest.mark.parametrize("name", CASES)
def test_programs_are_as_they_were_accepted(name: str, request: pytest.FixtureRequest) -> None:
    path, now = GOLDEN / f"{name}.txt", golden(name)
    if request.config.getoption("--accept"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(now)
    assert path.read_text() == now


@pytest.mark.slow
def test_this_commit_replays_without_a_difference() -> None:
    command = [sys.executable, TOOLS / "replay.py", "HEAD", "-k", "signals"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    assert "2 cases, " in done.stdout.splitlines()[-1]
