"""Kernels for Cortex-M have the bits of the portable ones; run in an emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

import c_batch
import cortex
from c_kernels import GUARD, KERNELS
from kernel_checks import INTEGER, runs
from kernel_samples import Sample

FILES = {path.stem for path in (KERNELS / "dsp").glob("*.c")}


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    cortex.need_tools()


def is_fast(sample: Sample) -> bool:
    """Some kernel of this sample is in dsp/, or a stream of such layers."""
    calls = [node.op.call(node) for node, _, _ in runs(sample, "dsp")]
    return any(call and call.source in FILES | {"stream_i8"} for call in calls)


@pytest.mark.parametrize("cpu", cortex.CPUS)
def test_kernels_compute_their_operators(cpu: str, tmp_path: Path) -> None:
    samples = [s for s in INTEGER if is_fast(s)]
    c_batch.check_samples(
        tmp_path, cortex.COMPILER, "dsp", *cortex.flags(cpu),
        guard=GUARD, samples=samples, cpu=cpu,
    )  # fmt: skip
