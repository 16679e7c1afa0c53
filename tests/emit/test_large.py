"""Programs of more than 2 GiB, which the code of an ordinary C program does not reach."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from built import losses, make, run
from whet.emit import program as emitted
from whet.errors import BuildError
from whet.runtime.build import build, library
from whet.runtime.mapping import map_weights


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
    made = compiled("wide")
    ram, flash = made.memory["ram"], made.memory["flash"]
    assert 1_000_000 < flash < ram
    for limit, expected in (
        (ram + flash, (False, False)),
        (ram + flash - 1, (True, False)),
        (flash, (True, False)),
        (flash - 1, (True, True)),
    ):
        monkeypatch.setattr(emitted, "STATIC", limit)
        program = replace(made)  # which works out afresh what lies where
        assert (program.large, program.storage.mapped) == expected


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
    (bss,) = re.findall(r" \.bss +NOBITS +\w+ \w+ (\w+)", sections)
    assert int(bss, 16) < 100 < program.memory["ram"]
    assert built.stat().st_size < 200_000, "no weights are linked"
    x = [torch.ones(t.shape) for name, t in program.tensors.items() if name.startswith("input")]
    assert program.load().predict(tuple(x)).shape[0] == 2, "as a shared library, too"


@pytest.mark.parametrize("frozen", [None, "int8", "q4_1", "kmeans4"])
def test_mapped_weights_are_those_that_are_linked(frozen: str | None) -> None:
    model, x, y = wide(), torch.randn(2, 600), torch.tensor([1, 3])
    model[2] = nn.Linear(600, 32)
    mapped, linked = (
        whet.compile(model, (x,), update="last", frozen=frozen, mapped=mapped)
        for mapped in (True, False)
    )
    assert "mapped from weights.bin" in mapped.report() != linked.report()
    one, other = mapped.load(), linked.load()
    assert [one.step(x, y) for _ in range(3)] == [other.step(x, y) for _ in range(3)]
    assert np.array_equal(one.predict(x), other.predict(x))
    assert mapped.memory["ram"] == linked.memory["ram"] + 8
    maps = Path("/proc/self/maps").read_text().splitlines()
    (own,) = (line.split() for line in maps if line.endswith(str(weights_of(mapped))))
    assert own[1] == "r--s", "read-only, and shared with other processes"


def weights_of(program: whet.Program) -> Path:
    """The file of weights of a program that is loaded."""
    return library(program, None).with_name("weights.bin")


def test_what_is_wrong_with_a_file_of_weights_is_said(tmp_path: Path) -> None:
    program = whet.compile(wide(), (torch.randn(2, 600),), portable=True, mapped=True)
    example, weights = make(program, tmp_path, CFLAGS="-O0"), tmp_path / "weights.bin"
    content = weights.read_bytes()
    assert content == program.files["weights.bin"] and len(content) % 4 == 0
    other = whet.compile(nn.Linear(600, 600), (torch.randn(2, 600),), mapped=True)
    loaded = ctypes.CDLL(str(build(program, tmp_path, ("-O0",))))
    for wrong, said, why in (
        (None, f"cannot open {weights}", "cannot be opened"),
        (b"", f"{weights} is too short", "too short"),
        (content[:-1], f"{weights} is too short", "too short"),
        (content + b"0", f"{weights} is not of this program", "another program"),
        (bytes(other.files["weights.bin"]), f"{weights} is not of this program", "another program"),
    ):
        weights.unlink(missing_ok=True)
        if wrong is not None:
            weights.write_bytes(wrong)
        done = subprocess.run([example], cwd="/", capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr == f"{said}\n"
        with pytest.raises(BuildError, match=re.escape(str(weights))) as error:
            map_weights(loaded.net_map_weights, weights)
        assert why in str(error.value)
        assert loaded.net_predict(None, None, None) == 6, "UNMAPPED; nothing was read"
    weights.write_bytes(content)
    assert len(losses(run(example))) > 3
    assert loaded.net_map_weights(str(weights).encode()) == 0


def test_a_new_file_leaves_those_in_use_as_they_are(tmp_path: Path) -> None:
    first = whet.compile(wide(), (torch.randn(2, 600),), mapped=True)
    first.write(tmp_path)
    with (tmp_path / "weights.bin").open("rb") as used:
        before = used.read()
        used.seek(0)
        model = wide()
        torch.nn.init.zeros_(model[0].weight)
        second = whet.compile(model, (torch.randn(2, 600),), mapped=True)
        second.write(tmp_path)
        assert used.read() == before == bytes(first.files["weights.bin"])
    written = tmp_path / "weights.bin"
    assert written.read_bytes() == second.files["weights.bin"] != first.files["weights.bin"]
    age = written.stat().st_mtime_ns
    second.write(tmp_path)
    assert written.stat().st_mtime_ns == age, "and is not written again"


def test_a_microcontroller_maps_nothing() -> None:
    with pytest.raises(whet.errors.TargetError, match="cortex-m7 has no files"):
        whet.compile(wide(), (torch.randn(2, 600),), target="cortex-m7", mapped=True)


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
    assert program.memory["ram"] > 1 << 31 and program.large and not program.storage.mapped
    built = make(program, tmp_path)
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(4 * (size + 1))  # zeros, of which the disk holds none
    printed = run(built, "data.bin", "1")
    assert "step    1  loss 0.000000" in printed
    assert int(printed.split(" bytes of memory")[0]) > 1 << 31
