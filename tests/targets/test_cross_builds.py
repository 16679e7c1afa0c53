"""Programs for other machines: built by zig, run by qemu-user; and folders as libraries."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from elftools.elf.elffile import ELFFile

import tiny
import whet
from boards import SHAPE, compiled
from whet.emit.program import Program
from whet.errors import BuildError, TargetError
from whet.targets import cross
from whet.targets.cross import CROSS

NAMES = [target.name for target in CROSS]
RUN_HERE = [target for target in CROSS if target.runner]
STEPS = 20


def of_kind(kind: str, target: str) -> Program:
    if kind == "int8":
        return compiled(target)
    torch.manual_seed(0)
    model = tiny.convnet().eval()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    return whet.compile(model, (next(tiny.images())[0],), optimizer=adam, target=target)


def data_file(kind: str, path: Path) -> Path:
    """Batches as main.c reads them: an input and its labels, and so on."""
    program = of_kind(kind, "portable")
    shape = SHAPE if kind == "int8" else next(tiny.images())[0].shape
    random = np.random.default_rng(0)
    with open(path, "wb") as file:
        for _ in range(5):
            x = random.normal(size=shape).astype(np.float32)
            stored = np.moveaxis(x, 1, -1)
            if kind == "int8":
                stored = program.quants["input"].quantize(stored)
            file.write(np.ascontiguousarray(stored).tobytes())
            file.write(random.integers(0, 3, shape[0]).astype(np.int32).tobytes())
    return path


def trained(command: list[str], folder: Path, data: Path) -> tuple[list[str], bytes]:
    """The losses that are printed, and the weights that are saved."""
    done = subprocess.run(
        [*command, str(data), str(STEPS)], cwd=folder, capture_output=True, text=True, check=True
    )
    losses = [line.split()[3] for line in done.stdout.splitlines() if line.startswith("step")]
    return losses, (folder / "checkpoint.bin").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("target", RUN_HERE, ids=lambda target: target.name)
@pytest.mark.parametrize("kind", ["int8", "float"])
def test_programs_for_other_processors_have_the_bits_of_this_one(
    kind: str, target: cross.Cross, tmp_path: Path
) -> None:
    """As many losses, and every bit of the weights after twenty steps."""
    assert shutil.which(target.runner), "`make system-test` installs qemu-user"
    data = data_file(kind, tmp_path / "data.bin")
    here = of_kind(kind, "portable").write(tmp_path / "here")
    subprocess.run(["make", "-s"], cwd=here, check=True)
    made = cross.build(of_kind(kind, target.name), tmp_path / "there")
    ours = trained([target.runner, str(made)], made.parent, data)
    theirs = trained([str(here / "net")], here, data)
    assert ours == theirs and len(set(ours[0])) == 3


ELF = {"aarch64-linux": "EM_AARCH64", "armv7-linux": "EM_ARM", "riscv64-linux": "EM_RISCV"}
PE_X86_64, MACH_64, MACH_ARM64 = 0x8664, 0xFEEDFACF, 0x0100000C


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_built_is_for_that_machine(name: str, tmp_path: Path) -> None:
    """Windows and macOS: linked, and no more; nothing here runs such programs."""
    path = cross.build(of_kind("float", name), tmp_path)
    head = path.read_bytes()[:4096]
    if name in ELF:
        with open(path, "rb") as file:
            elf = ELFFile(file)
            assert elf["e_machine"] == ELF[name] and elf["e_type"] == "ET_EXEC"
            kinds = {segment["p_type"] for segment in elf.iter_segments()}
            assert "PT_INTERP" not in kinds, "static: it needs no libraries of the machine"
    elif name == "x86_64-windows":
        at = struct.unpack_from("<I", head, 0x3C)[0]
        assert head[:2] == b"MZ" and head[at : at + 4] == b"PE\0\0"
        assert struct.unpack_from("<H", head, at + 4)[0] == PE_X86_64
    else:
        assert struct.unpack_from("<II", head) == (MACH_64, MACH_ARM64)
    make = ["make", "-s", "lib", f"ZIG={cross.compiler()}"]
    subprocess.run(make, cwd=tmp_path, check=True)
    assert (tmp_path / "libnet.a").stat().st_size > 1000


@pytest.mark.slow
def test_large_weights_are_included_for_every_machine(tmp_path: Path) -> None:
    """weights.bin, by the assembler, in the formats of all systems."""
    model = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.ReLU(), torch.nn.Linear(600, 3))
    for name in NAMES:
        program = whet.compile(model, (torch.zeros(1, 600),), update="last", target=name)
        assert "weights.bin" in program.files
        assert cross.build(program, tmp_path / name).stat().st_size > 600 * 600 * 4


@pytest.mark.parametrize("name", NAMES)
def test_the_project_says_how_it_is_built(name: str) -> None:
    program = of_kind("float", name)
    target = program.target
    assert isinstance(target, cross.Cross)
    makefile = program.files["Makefile"].decode()
    assert all(words in makefile for words in target.machine) and "-ffp-contract=off" in makefile
    here = of_kind("float", "portable")
    differ = {path for path in here.files if program.files[path] != here.files[path]}
    assert program.files.keys() == here.files.keys() and "model.c" not in differ
    assert differ <= {"Makefile", "report.txt"}
    with pytest.raises(TargetError, match=f"a program for {name} does not run in this process"):
        program.load()


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = of_kind("float", "aarch64-linux")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match="not installed") as caught:
        cross.build(program, tmp_path / "none")
    assert "pip install ziglang" in str(caught.value) and not (tmp_path / "none").exists()
    program.write(tmp_path)
    made = subprocess.run(
        ["make", "ZIG=no-such-zig"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode != 0 and "pip install ziglang" in made.stderr
    assert subprocess.run(["make", "-s", "clean", "ZIG=none"], cwd=tmp_path).returncode == 0
    with pytest.raises(TargetError, match="portable is not for another machine"):
        cross.build(of_kind("float", "portable"), tmp_path)


APP = r"""
#include <stdio.h>
#include "model.h"
static net_t net;
static net_input_t image[NET_INPUT_ELEMENTS];
static net_label_t label[NET_LABEL_ELEMENTS];
int main(void) {
    float loss;
    net_init(&net);
    for (size_t i = 0; i < NET_INPUT_ELEMENTS; i++) image[i] = (net_input_t)(i % 7);
    if (net_train_step(&net, image, label, 0.05f, &loss) != NET_OK) return 1;
    printf("%a\n", (double)loss);
    return 0;
}
"""

LISTS = """
cmake_minimum_required(VERSION 3.16)
project(app C)
find_package(net CONFIG REQUIRED)
find_package(net CONFIG REQUIRED)
add_executable(app app.c)
target_link_libraries(app PRIVATE net::net)
"""


def expected(program: Program) -> float:
    """The loss of the step of APP."""
    (x, y) = next(tiny.images())
    count = int(np.prod(x.shape))
    n, c, *space = x.shape
    stored = (np.arange(count) % 7).astype(np.float32).reshape(n, *space, c)
    return program.load().step(
        np.moveaxis(stored, -1, 1).copy(), np.zeros(y.shape, y.numpy().dtype)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    program = of_kind("float", "portable")
    path = tmp_path_factory.mktemp("library") / "net"
    return program.write(path), expected(program)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["this", "aarch64"])
def test_a_cmake_project_finds_it_as_a_package(
    how: str, folder: tuple[Path, float], tmp_path: Path
) -> None:
    """Built with the project's own compiler: this machine's, and a cross compiler as in an SDK."""
    (tmp_path / "app.c").write_text(APP)
    (tmp_path / "CMakeLists.txt").write_text(LISTS)
    words = [f"-Dnet_DIR={folder[0]}"]
    if how == "aarch64":
        words += ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
                  "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc", "-DCMAKE_EXE_LINKER_FLAGS=-static",
                  "-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY"]  # fmt: skip
    for command in (["-S", ".", "-B", "b", *words], ["--build", "b"]):
        subprocess.run(["cmake", *command], cwd=tmp_path, check=True, capture_output=True)
    run = ["qemu-aarch64"] if how == "aarch64" else []
    said = subprocess.check_output([*run, str(tmp_path / "b" / "app")], text=True)
    assert float.fromhex(said) == folder[1]


@pytest.mark.slow
def test_pkg_config_finds_it(folder: tuple[Path, float], tmp_path: Path) -> None:
    (tmp_path / "app.c").write_text(APP)
    subprocess.run(["make", "-s", "lib"], cwd=folder[0], check=True)
    found = os.environ | {"PKG_CONFIG_PATH": str(folder[0])}
    words = subprocess.check_output(
        ["pkg-config", "--cflags", "--libs", "net"], env=found, text=True
    ).split()
    subprocess.run(["cc", "app.c", *words, "-o", "app"], cwd=tmp_path, check=True)
    where = os.environ | {"LD_LIBRARY_PATH": str(folder[0])}
    assert (
        float.fromhex(subprocess.check_output([tmp_path / "app"], env=where, text=True))
        == (folder[1])
    )
