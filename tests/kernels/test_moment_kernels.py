"""Moments in bf16 are dithered in C as in NumPy, to the bit, where the update itself is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import c_kernels
from kernel_samples import Numbers, Sample
from whet.ir import Array, Op
from whet.ops._bf16 import dithered, nearest

ROWS, COLUMNS = 37, 19
# The mean of two numbers of few bits fits in the 24 of a float, but not in the 8 of bf16.
ATTRS: dict[str, Any] = dict(beta1=0.5, beta2=0.5, narrow=True)


def multiples(g: Numbers, parts: int, below: int, *shape: int) -> Array:
    """Of 1 / parts."""
    most = parts * below - 1
    return (g.rng.integers(-most, most + 1, shape) / parts).astype(np.float32)


def operands(name: str) -> tuple[Array, tuple[Array, ...], dict[str, Any]]:
    """The gradient, what the operator has in its place, and attributes of its own."""
    g = Numbers(name)
    if name == "dw_adam":
        dy, x = multiples(g, 8, 4, 1, ROWS), multiples(g, 8, 4, 1, COLUMNS)
        return dy.T @ x, (dy, x), {}
    if name == "take_adam":
        dy, index = multiples(g, 64, 16, 5, COLUMNS), np.array([3, 36, 0, 17, 20], np.int32)
        grad = np.zeros((ROWS, COLUMNS), np.float32)
        grad[index] = dy
        return grad, (dy, index), dict(axis=0, size=ROWS, skip=-1)
    grad = multiples(g, 64, 16, ROWS, COLUMNS)
    return grad, (grad,), {}


@pytest.mark.parametrize("isa", c_kernels.ISAS)
@pytest.mark.parametrize("name", ["adam", "dw_adam", "take_adam"])
@pytest.mark.parametrize("step", [1, 10_000])
def test_moments_are_dithered_to_the_bit(name: str, isa: str, step: int) -> None:
    g = Numbers("moments")
    grad, given, own = operands(name)
    m, v = multiples(g, 4, 16, *grad.shape), np.abs(multiples(g, 4, 16, *grad.shape))
    t, lr = np.float32(step).reshape(()), np.float32(0.01).reshape(())
    ins = (g.normal(*grad.shape), *given, nearest(m), nearest(v), t, lr)
    ((node, arrays),) = Sample(Op.registry[name], ins, ATTRS | own, name).nodes()
    _, *moments = c_kernels.execute(node, arrays, isa=isa)
    for bits, exact in zip(moments, ((m + grad) / 2, (v + grad * grad) / 2), strict=True):
        np.testing.assert_array_equal(bits, dithered(exact, step))
        assert (bits != nearest(exact)).any(), "rounding to the nearest is something else"
