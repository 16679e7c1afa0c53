"""The arithmetic of kernels/ref in NumPy, bit for bit: the same operations in the same order.

What `Op.exact` is made of. Where a kernel adds several numbers at a time, so does the function
here that bears its name; what a kernel does for many rows independently, NumPy does at once. Zeros
may be added to the end of a sum in lanes: such a sum is never -0, so they change no bit.
"""

from __future__ import annotations

import math

import numpy as np

from ..ir import Array
from ._common import collapse, strides

TILE = 16  # WHET_TILE
DEPTH = 64  # WHET_DEPTH
CHUNK = 128  # WHET_CHUNK

F = np.float32


# --- functions


def clip(x: Array, low: float, high: float) -> Array:
    """`whet_clip`: NaN stays NaN, and so does -0 if a limit is 0."""
    raised = np.where(x < F(low), F(low), x)
    return np.where(raised > F(high), F(high), raised)


def polynomial(x: Array, *coefficients: float) -> Array:
    """Horner's rule, the highest power first."""
    y = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y = y * x + F(c)
    return y


LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)


def power2(n: Array) -> Array:
    return ((n + np.int32(127)).view(np.uint32) << np.uint32(23)).view(np.float32)


def exp_parts(x: Array) -> tuple[Array, Array, Array]:
    """`whet_exp_parts`: rest, half, other"""
    flat = clip(np.asarray(x, np.float32), -104.0, 104.0)
    shifter = np.array(12582912.0, np.float32)
    shifted = flat * F(1.44269504) + shifter
    n = shifted - shifter
    r = (flat - n * LN2_HIGH) - n * LN2_LOW
    p = polynomial(r, 0.001381454, 0.008368745, 0.04166839, 0.16666521, 0.49999994)
    k = (shifted.view(np.uint32) - shifter.view(np.uint32)).view(np.int32)
    half = np.trunc(k / 2).astype(np.int32)  # as C divides
    return r + r * r * p, power2(half), power2(k - half)


def exp(x: Array) -> Array:
    """`whet_exp`"""
    rest, half, other = exp_parts(np.reshape(x, -1))
    with np.errstate(over="ignore", under="ignore"):
        return ((F(1) + rest) * half * other).reshape(np.shape(x))


def log(x: Array) -> Array:
    """`whet_log`"""
    one, root = np.uint32(0x3F800000), np.uint32(0x3F3504F3)
    flat = np.asarray(x, np.float32).reshape(-1)
    small = flat < F(1.17549435e-38)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(small, flat * F(8388608), flat)
        bits = scaled.view(np.uint32) + (one - root)
        whole = (bits >> np.uint32(23)).astype(np.int32) - np.where(small, 150, 127)
        rest = (bits & np.uint32(0x007FFFFF)) + root
        e, f = whole.astype(np.float32), rest.view(np.float32) - F(1)
        p = polynomial(f, 0.0674664, -0.116764545, 0.11888593, -0.124054976, 0.14219487,
                       -0.16667998, 0.20002122, -0.2500001, 0.33333313)  # fmt: skip
        square = f * f
        y = (f * square * p + e * LN2_LOW - F(0.5) * square) + f + e * LN2_HIGH
    y = np.where(flat < np.inf, y, flat)  # inf and NaN are their own logarithm
    y = np.where(flat == 0, F(-np.inf), np.where(flat < 0, F(np.nan), y))
    return y.reshape(np.shape(x))


def sigmoid(x: Array) -> Array:
    """`whet_sigmoid`"""
    e = exp(-np.abs(x))
    return np.where(x >= 0, F(1), e) / (F(1) + e)


def tanh(x: Array) -> Array:
    """`whet_tanh`"""
    with np.errstate(over="ignore", under="ignore"):
        rest, half, other = exp_parts(np.reshape(F(-2) * np.abs(x), -1))
        m = (rest * half * other + (half * other - F(1))).reshape(np.shape(x))
    return np.copysign(-m / (F(2) + m), x)


def erfc(scaled: Array, e: Array) -> Array:
    """`whet_erfc`"""
    u = F(1) / (F(1) + scaled)
    v = F(1) - u
    p = polynomial(v, -0.057599813, 0.18398356, -0.17469162, 0.06210793, -0.10920866, 0.014455597,
                   0.24020223, 0.20264299, -1.0515996)  # fmt: skip
    with np.errstate(under="ignore"):
        return e * u * (F(1) + v * p)


def erf(x: Array) -> Array:
    """`whet_erf`"""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size, square = np.abs(x), x * x
        p = polynomial(square, 0.00428832183, -0.026480902, 0.112771973, -0.376122415, 0.128379121)
        near, far = size + size * p, F(1) - erfc(F(0.55) * size, exp(-square))
    return np.copysign(np.where(size < F(0.6), near, far), x)


def normal(x: Array) -> tuple[Array, Array]:
    """`whet_normal`: below, density"""
    with np.errstate(over="ignore", under="ignore"):
        e = exp(F(-0.5) * x * x)
        tail = F(0.5) * erfc(F(0.38890873) * np.abs(x), e)
        return np.where(x < 0, tail, F(1) - tail), F(0.39894228) * e


# --- sums


def in_order(terms: Array, start: Array | None = None) -> Array:
    """Along the first axis, one after the other."""
    total = np.zeros(terms.shape[1:], np.float32) if start is None else start
    for term in terms:
        total = total + term
    return total


def compensated(terms: Array) -> Array:
    """Along the first axis with `whet_add`."""
    total = lost = np.zeros(terms.shape[1:], np.float32)
    for x in terms:
        term = x - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total


def fold(lanes: Array) -> Array:
    """`whet_fold` along the last axis."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def filled(x: Array, multiple: int, axis: int = -1) -> Array:
    """Zeros behind x until its size along the axis is a multiple."""
    missing = [(0, 0)] * x.ndim
    missing[axis] = (0, -x.shape[axis] % multiple)
    return np.pad(x, missing)


def line_sum(terms: Array) -> Array:
    """WHET_SUM along the last axis: chunks in lanes, then what fills no tile one by one."""
    whole = terms.shape[-1] // TILE * TILE
    lanes = filled(terms[..., :whole], CHUNK * TILE)
    chunks = lanes.shape[-1] // (CHUNK * TILE)
    lanes = lanes.reshape(*terms.shape[:-1], chunks, CHUNK, TILE)
    parts = fold(in_order(np.moveaxis(lanes, -2, 0)))
    return compensated(np.moveaxis(np.concatenate([parts, terms[..., whole:]], -1), -1, 0))


def row_sum(terms: Array) -> Array:
    """WHET_SUM_ROWS: of all rows, the last axis but one."""
    *outer, _, n = terms.shape
    chunks = filled(terms, CHUNK, axis=-2).reshape(*outer, -1, CHUNK, n)
    return compensated(np.moveaxis(in_order(np.moveaxis(chunks, -2, 0)), -2, 0))


def reduce_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """`whet_reduce` over `axes`, which stay with size 1."""
    small = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    dims, (step,) = collapse(x.shape, strides(small))
    columns = step[-1] != 0
    if columns:
        dims, step = (dims, step) if len(dims) > 1 else ((1, *dims), (0, *step))
        parts = row_sum(x.reshape(dims))
        outer = len(dims) - 2
    else:
        parts = line_sum(x.reshape(dims))
        outer = len(dims) - 1
    reduced = [i for i in range(outer) if step[i] == 0]
    kept = [i for i in range(parts.ndim) if i not in reduced]
    count = math.prod(dims[i] for i in reduced)
    return in_order(parts.transpose(*reduced, *kept).reshape(count, -1)).reshape(small)


# --- matrix products


def matmul(y: Array, a: Array, b: Array) -> Array:
    """`whet_matmul`: y[...,n] + a[...,k] b[k,n], DEPTH products at a time."""
    for first in range(0, len(b), DEPTH):
        part = np.zeros(y.shape, np.float32)
        for k in range(first, min(first + DEPTH, len(b))):
            part = part + a[..., k, None] * b[k]
        y = y + part
    return y


def dot(a: Array, b: Array) -> Array:
    """`whet_dot` along the last axis."""
    products = a * b
    whole = products.shape[-1] // TILE * TILE
    lanes = products[..., :whole].reshape(*products.shape[:-1], whole // TILE, TILE)
    start = fold(in_order(np.moveaxis(lanes, -2, 0)))
    return in_order(np.moveaxis(products[..., whole:], -1, 0), start)


def matmul_nt(y: Array, a: Array, b: Array) -> Array:
    """`whet_matmul_nt`: y[...,n] + a[...,k] b[n,k]'."""
    rows = math.prod(a.shape[:-1])
    return y + dot(a[..., None, :], b) if rows < 4 else matmul(y, a, b.T)


def start(shape: tuple[int, ...], bias: Array | None, add: Array | None) -> Array:
    """`whet_start_rows`: what a fused layer begins its sums with."""
    if add is None:
        return np.zeros(shape, np.float32) if bias is None else np.broadcast_to(bias, shape).copy()
    return add.copy() if bias is None else add + bias
