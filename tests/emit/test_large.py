"""Programs of more than 2 GiB, which the code of an ordinary C program does not reach."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import whet
from built import losses, make, run
from whet.emit import program as emitted


class Two(nn.Module):
    """Two inputs, for which there is another main program."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.fc(x + y)


def wide() -> nn.Module:
    """More weights than are spelled out in weights.c."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 4))


def compiled(kind: str) -> whet.Program:
    torch.manual_seed(0)
    if kind == "two inputs":
        return whet.compile(Two(), (torch.ones(2, 4), torch.ones(2, 4)), portable=True)
    return whet.compile(wide(), (torch.randn(2, 600),), portable=True)


def test_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled("wide")
    ram, flash = program.memory["ram"], program.memory["flash"]
    assert 1_000_000 < flash < ram
    for limit, expected in (
        (ram + flash, (False, False)),
        (ram + flash - 1, (True, False)),
        (flash, (True, False)),
        (flash - 1, (True, True)),
    ):
        monkeypatch.setattr(emitted, "STATIC", limit)
        assert (program.large, program.far) == expected


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("kind", ["wide", "two inputs"])
def test_a_large_program_does_what_a_small_one_does(
    kind: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if there was no room at all, so that this one counts as large."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    small = run(make(compiled(kind), tmp_path / "small", CC=compiler, CFLAGS="-O1"))
    monkeypatch.setattr(emitted, "STATIC", 0)
    program = compiled(kind)
    built = make(program, tmp_path / "large", CC=compiler, CFLAGS="-O1")
    large = run(built)
    if kind != "two inputs":  # whose example prints nothing
        assert len(losses(small)) > 3 and losses(large) == losses(small)
    sections = subprocess.check_output(["readelf", "-SW", built], text=True)
    assert (" .lrodata " in sections) == (kind == "wide")
    (bss,) = re.findall(r" \.bss +NOBITS +\w+ \w+ (\w+)", sections)
    assert int(bss, 16) < 100 < program.memory["ram"]
    x = [torch.ones(t.shape) for name, t in program.tensors.items() if name.startswith("input")]
    assert program.load().predict(tuple(x)).shape[0] == 2, "as a shared library, too"


class Long(nn.Module):
    """One parameter, and arrays of half a GiB."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.weight)


@pytest.mark.slow
def test_a_program_of_two_gigabytes_builds_and_runs(tmp_path: Path) -> None:
    size = 1 << 27

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).pow(2).mean()

    program = whet.compile(Long(), (torch.zeros(size),), loss=loss, labels=torch.zeros(1))
    assert program.memory["ram"] > 1 << 31 and program.large and not program.far
    built = make(program, tmp_path)
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(4 * (size + 1))  # zeros, of which the disk holds none
    printed = run(built, "data.bin", "1")
    assert "step    1  loss 0.000000" in printed
    assert int(printed.split(" bytes of memory")[0]) > 1 << 31
