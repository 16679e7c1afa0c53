"""The examples that make their own data learn, on this machine and on an emulated chip."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import ROOT

EXAMPLES = ROOT / "examples"
PROGRAMS = {"keywords": "keywords.py", "pictures": "personalize.py", "sensor": "sensor.py"}
HAS_CHIP = bool(shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"))
on = pytest.mark.parametrize(
    "mcu",
    [False, pytest.param(True, marks=pytest.mark.skipif(not HAS_CHIP, reason="no Arm compiler"))],
    ids=["host", "cortex-m7"],
)


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name / PROGRAMS[name]))


def check_words(found: dict[str, float]) -> None:
    assert found["before"] < 0.75 and found["after"] > found["before"] + 0.15


def check_pictures(found: dict[str, float]) -> None:
    assert found["before"] < 0.5 and found["after"] > 0.8


def check_sensor(found: dict[str, tuple[float, ...]]) -> None:
    false, seen, named = zip(*(found[w] for w in ("before", "adapted", "named")), strict=True)
    assert false[0] > 0.2 > 0.1 > max(false[1:]), "what is normal for this machine"
    assert seen[1] > 0.8, "the unknown event"
    assert max(named[:2]) < 0.75 and named[2] > 0.9, "its name, and those of the others"


CHECKS: dict[str, Callable[[Any], None]] = {
    "keywords": check_words, "pictures": check_pictures, "sensor": check_sensor,
}  # fmt: skip


@pytest.mark.slow
@on
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_example_learns(name: str, mcu: bool, tmp_path: Path) -> None:
    found = load(name)["main"](tmp_path / "out", mcu)
    CHECKS[name](found)
    subprocess.run(["make", "-s", "-C", str(tmp_path / "out")], check=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_names_what_there_is(name: str) -> None:
    """The program, the functions that a reader is told to replace, and entry points of model.h."""
    page, names = (EXAMPLES / name / "README.md").read_text(), load(name)
    assert f"python {PROGRAMS[name]} --mcu" in page
    replaced = re.findall(r"replace\s+`(\w+)", page)
    assert replaced and all(callable(names[function]) for function in replaced)
    assert f"({name}/README.md)" in (EXAMPLES / "README.md").read_text()
