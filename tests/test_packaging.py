"""What `pip install` gives is all of whet: a wheel, used from a folder without the sources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import whet
from examples import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def listed(*paths: str) -> list[str]:
    command = ["git", "ls-files", "-z", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\0").split("\0")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that git knows, so that nothing else of the checkout gets into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in listed("src", "pyproject.toml", "README.md", "LICENSE"):
        target = folder / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(folder / "checkout")], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("whet/")}
    assert packed == {name.removeprefix("src/") for name in listed("src/whet")}
    assert wheel.name.startswith(f"whet-{whet.__version__}-")


@pytest.mark.slow
def test_the_command_works_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "installed")

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "whet", *words], cwd=tmp_path, capture_output=True,
            text=True, env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version") == f"whet {whet.__version__}\n"
    assert "budget" in run("explain", "W301")
    model = ("whet.models:lenet", "-i", "1,1,28,28", "--update", "last")
    run("compile", *model, "--target", "portable", "-o", "out")
    subprocess.run(["make", "-s", "-C", str(tmp_path / "out")], check=True)
    run("compile", *model, "--target", "cortex-m7", "-o", "firmware")
    run("report", *model, "-o", "report.html")
    assert "<script>" in (tmp_path / "report.html").read_text()


def test_the_version_is_in_one_place() -> None:
    assert "version" not in PROJECT and PROJECT["dynamic"] == ["version"]


def test_every_extra_is_in_the_table() -> None:
    page = (ROOT / "docs" / "design" / "dependencies.md").read_text()
    table = page.partition("| extra |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", table.replace("epsilon", ""))) == set(
        PROJECT["optional-dependencies"]
    )
