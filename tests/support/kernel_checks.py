"""What a kernel's sample has to show, wherever the kernel runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from c_kernels import sources
from kernel_samples import Sample, all_samples, reference
from kernel_samples_attention import attention_samples
from kernel_samples_fused import fused_samples
from kernel_samples_i8 import i8_samples
from kernel_samples_lm import lm_samples
from kernel_samples_stored import bf16_samples, dots_samples, stored_samples
from whet.ir import Array, Node
from whet.ops.optimizers import OPTIMIZERS

FLOATS = all_samples() + attention_samples() + fused_samples() + lm_samples() + stored_samples()
FLOATS += dots_samples() + bf16_samples()
INTEGER = i8_samples()
SAMPLES = FLOATS + INTEGER
EXACT = {"dropout", "reshape", "transpose", "slice", "slice_dx", "concat", "pad", "take", "fill"}
EXACT |= {"pick_largest", "pick", "spread", "cast", "floor", "take_along", "uniform", "within_bits"}
# Floats too, to the bit: the order of every sum is part of what these mean.
EXACT |= {"conv2d_i8_dx", "conv2d_i8_dw", "depthwise_i8_dx", "depthwise_i8_dw", "requantize"}
EXACT |= {"requantize_dx", "dequantize", "add_i8", "conv2d_i8_fused", "depthwise_i8_fused"}
EXACT |= {
    "widen",
    "lookup",
    "lookup_scaled",
    "take_stored",
    "quantize_rows",
    "linear_dots",
    "narrow_gradient",
    "settle",
    "settle_master",
}
EXACT |= {op.name for o in OPTIMIZERS for op in (o.step, o.fused_step) if op is not None}

Share = tuple[tuple[int, int], ...]
Run = tuple[Node, list[Array], Share]


def runs(sample: Sample, isa: str) -> list[Run]:
    """Every node that has a kernel, with results apart and then in every place allowed."""
    files = {path.stem for path in sources(isa)}
    calls = [(node, arrays, node.op.call(node)) for node, arrays in sample.nodes()]
    return [
        (node, arrays, share)
        for node, arrays, call in calls
        if call is not None and call.source in files
        for share in ((), *sharings(node))
    ]


def sharings(node: Node) -> list[Share]:
    """What the operator says may be in place: every pair alone, and one of each output at once."""
    pairs = node.op.inplace(node)
    alone = [(pair,) for pair in pairs]
    by_output = [[p for p in pairs if p[0] == i] for i in range(len(node.outs))]
    together = itertools.product(*(group for group in by_output if group))
    return [*alone, *(t for t in together if len(t) > 1)]


def check(runs: Sequence[Run], results: Sequence[tuple[Array, ...]]) -> None:
    """Results apart are what the operator means, and in place they have the same bits."""
    apart: tuple[Array, ...] = ()
    for (node, arrays, share), given in zip(runs, results, strict=True):
        if share:
            for got, right in zip(given, apart, strict=True):
                message = f"{node.op.name} in place {share}"
                np.testing.assert_array_equal(got, right, err_msg=message)
        else:
            apart = given
            exact = np.float32 if node.op.name in EXACT else np.float64
            for got, right in zip(given, reference(node, arrays, exact), strict=True):
                assert_close(node, got, right)


def assert_close(node: Node, given: Array, right: Array) -> None:
    """Equal, if nothing is rounded; else within 1e-5 of the size of the whole array, or in bf16
    within a unit of the last place: sums that differ a little may be rounded to either side."""
    if given.dtype == np.uint16:
        assert np.abs(given.astype(np.int32) - right.astype(np.int32)).max() <= 1
        return
    if given.dtype != np.float32 or node.op.name in EXACT:
        np.testing.assert_array_equal(given, right)
        np.testing.assert_array_equal(np.signbit(given), np.signbit(right))
        return
    number = np.isfinite(right)
    np.testing.assert_array_equal(given[~number], right.astype(np.float32)[~number])
    error = np.linalg.norm(given[number] - right[number])
    assert error <= 1e-5 * np.linalg.norm(right[number]), f"off by {error} of {right}"
