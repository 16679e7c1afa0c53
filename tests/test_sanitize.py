"""No kernel does what C leaves undefined, or reads astray."""

from __future__ import annotations

from pathlib import Path

import pytest

import c_batch
import c_kernels

ADDRESS = "-g -march=native -fsanitize=address,undefined -fno-sanitize-recover=all"


@pytest.mark.parametrize("isa", c_kernels.ISAS)
def test_every_kernel_keeps_to_its_arrays(isa: str, tmp_path: Path) -> None:
    c_batch.check_samples(tmp_path, "gcc", isa, "-O0", *ADDRESS.split())
