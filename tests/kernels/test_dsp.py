"""Kernels for Cortex-M have the bits of the portable ones; run in an emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c_batch
import cortex
from c_kernels import GUARD, KERNELS
from kernel_checks import INTEGER, runs
from kernel_samples import Collector, Sample
from whet.ops.conv import Window

FILES = {path.stem for path in (KERNELS / "dsp").glob("*.c")}


@pytest.fixture(autouse=True, scope="module")
def tools() -> None:
    cortex.need_tools()


def is_fast(sample: Sample) -> bool:
    """Some kernel of this sample is in dsp/, or a stream of such layers."""
    calls = [node.op.call(node) for node, _, _ in runs(sample, "dsp")]
    return any(call and call.source in FILES | {"stream_i8"} for call in calls)


@pytest.mark.parametrize(
    "cpu",
    # the other has the same instructions, and layers of any shape below
    [c if c == "m7" else pytest.param(c, marks=pytest.mark.slow) for c in cortex.CPUS],
)
def test_kernels_compute_their_operators(cpu: str, tmp_path: Path) -> None:
    samples = [s for s in INTEGER if is_fast(s)]
    c_batch.check_samples(
        tmp_path, cortex.COMPILER, "dsp", *cortex.flags(cpu),
        guard=GUARD, samples=samples, cpu=cpu,
    )  # fmt: skip


def draw(s: Collector, rng: np.random.Generator) -> None:
    """A convolution, a depthwise layer, and both narrowed, of any shape; gradients come along."""

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    def zero() -> int:
        return int(np.clip(number(-160, 160), -128, 127))

    n, h, w = number(1, 2), number(1, 13), number(1, 13)
    if number(0, 9) == 0:
        h, w = number(1, 3), number(40, 140)
    groups = number(1, 3) if number(0, 3) == 0 else 1
    ci, co = number(1, 22), number(1, 22)
    kernel = (1, 1) if number(0, 2) == 0 else (number(1, 7), number(1, 7))
    stride = (number(1, 3), number(1, 3))
    dilation = (number(1, 2), number(1, 3)) if number(0, 1) else (1, 1)
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    pad = [number(0, k) for k in (*kernel, *kernel)]
    pad[2] += max(least[0] - h - pad[0] - pad[2], 0)
    pad[3] += max(least[1] - w - pad[1] - pad[3], 0)
    window: dict[str, Any] = dict(pad=tuple(pad), stride=stride, dilation=dilation)
    g = s.numbers("conv2d_i8")
    c, o = ci * groups, co * groups
    x, of_conv, of_depth = g.i8(n, h, w, c), g.i8(o, *kernel, ci), g.i8(*kernel, c)
    s.add("conv2d_i8", x, of_conv, g.i32(o, size=2**31 - 1), zero=zero(), groups=groups, **window)
    s.add("depthwise_i8", x, of_depth, zero=zero(), **window)
    out = Window(**window).output((h, w), kernel)
    for dy in g.gradients(n, *out, o):
        s.add("conv2d_i8_dx", dy, of_conv, g.positive(1), size=(h, w), groups=groups, **window)
    low, high = sorted((zero(), zero())) if number(0, 1) else (-128, 127)
    for op, weight, more in (
        ("conv2d_i8_fused", of_conv, {"groups": groups}),
        ("depthwise_i8_fused", of_depth, {}),
    ):
        outputs = o if more else c
        scale = (g.positive(outputs) / (number(1, 300) * weight.size / outputs)).astype(np.float32)
        bias, mask, part = (bool(number(0, 1)) for _ in range(3))
        operands = [g.i32(outputs)] * bias + [scale]
        ends = dict(x_zero=zero(), zero=zero(), low=low, high=high)
        if part and more:
            second = number(1, 9)
            operands += [g.i8(n, h, w, second * groups), g.i8(o, *kernel, second)]
            more = more | {"part": True}
        s.add(op, x, weight, *operands, bias=bias, mask=mask, **ends, **more, **window)


@pytest.mark.parametrize("cpu", cortex.CPUS)
def test_layers_of_any_shape(cpu: str, tmp_path: Path) -> None:
    rng, s = np.random.default_rng(list(cpu.encode())), Collector("any-")
    for _ in range(60):
        draw(s, rng)
    c_batch.check_samples(
        tmp_path, cortex.COMPILER, "dsp", *cortex.flags(cpu),
        guard=GUARD, samples=s.samples, cpu=cpu,
    )  # fmt: skip
