"""Programs for other processors: aarch64, in an emulator, and x86 with narrower vectors."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import c_batch
import tiny
import whet
from built import losses, make, run
from c_kernels import GUARD
from kernel_checks import FLOATS, INTEGER
from kernel_samples import Sample

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    missing = [tool for tool in (COMPILER, EMULATOR) if not shutil.which(tool)]
    assert not missing, f"{missing} not found: `make system-test` installs them"


# Products and sums are contracted in the floats, and not where the bits of a sum are its meaning.
CONTRACTED: dict[str, Sequence[Sample]] = {"fast": FLOATS, "off": INTEGER}


@pytest.mark.parametrize(
    ("contract", "machine"),
    [
        pytest.param("fast", "", id="floats"),
        pytest.param("off", "", id="integers", marks=pytest.mark.slow),
        pytest.param("off", "-march=armv8.2-a+dotprod", id="dotprod"),
    ],
)
def test_vector_kernels_compute_their_operators(
    contract: str, machine: str, tmp_path: Path
) -> None:
    """With -O2, which compiles far faster than -O3; the program below is built with that."""
    flags = ("-O2", f"-ffp-contract={contract}", *machine.split(), "-static")
    samples = CONTRACTED[contract]
    c_batch.check_samples(
        tmp_path, COMPILER, "vec", *flags, emulator=EMULATOR, guard=GUARD, samples=samples
    )


@pytest.mark.skipif(
    platform.machine() != "x86_64",
    reason="gcc has these flags on x86 only; other vectors are tested as aarch64's",
)
@pytest.mark.parametrize(
    ("vectors", "contract"),
    [
        pytest.param("-mavx2 -mfma", "fast", id="avx2-floats", marks=pytest.mark.slow),
        pytest.param("-mavx2 -mfma", "off", id="avx2-integers", marks=pytest.mark.slow),
        pytest.param("", "fast", id="sse-floats", marks=pytest.mark.slow),
        pytest.param("", "off", id="sse-integers", marks=pytest.mark.slow),
    ],
)
def test_narrower_vectors_compute_their_operators(
    vectors: str, contract: str, tmp_path: Path
) -> None:
    """Blocks of 6 rows and vectors of 4 and 8, which a machine with AVX-512 does not use."""
    flags = ("-O2", f"-ffp-contract={contract}", *vectors.split())
    samples = CONTRACTED[contract]
    c_batch.check_samples(tmp_path, "gcc", "vec", *flags, guard=GUARD, samples=samples)


@pytest.mark.parametrize(
    "portable",
    [
        pytest.param(False, id="vectors"),
        pytest.param(True, id="portable", marks=pytest.mark.slow),
    ],
)
def test_a_program_trains_as_it_does_here(portable: bool, tmp_path: Path) -> None:
    model, (x, _) = tiny.convnet().train(), next(tiny.images())
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    program = whet.compile(model, (x,), optimizer=adam, portable=portable)
    flags = " ".join(f for f in program.flags if f != "-march=native")
    there = make(program, tmp_path / "there", CC=COMPILER, CFLAGS=flags, LDFLAGS="-static")
    here = losses(run(make(program, tmp_path / "here", CFLAGS="-O1 -march=native")))
    assert len(here) == 5 and here[-1] < here[0]
    np.testing.assert_allclose(losses(run(there, emulator=EMULATOR)), here, rtol=1e-4)
