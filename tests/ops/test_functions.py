"""Functions of one number that do not call the C library: how right they are, in C and in NumPy."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

import c_kernels
from same_bits import assert_same_bits
from whet.ir import Array, Attributes, Op
from whet.ops import _exact
from whet.ops.activation import GeluTanh
from whet.ops.unary import erf
from whet.targets.host import HOST
from whet.targets.portable import PORTABLE


def errors(given: Array, right: Array) -> Array:
    """In units of the last place of the right result; right is in double."""
    rounded = right.astype(np.float32)
    return np.abs(given - right) / np.spacing(np.abs(rounded)).astype(np.float64)


def floats(low: float, high: float, step: int) -> Array:
    """Every `step`-th float from low to high, which have one sign."""
    first, last = np.array([low, high], np.float32).view(np.uint32)
    return np.arange(first, last, step, dtype=np.uint32).view(np.float32)


def kernel(name: str, *given: Array) -> Array:
    function = getattr(c_kernels.library("ref"), f"whet_{name}_f32")
    y = np.empty_like(given[0])
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (y, *given)), ctypes.c_int32(y.size))
    return y


RIGHT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": erf,
}

RANGES = [
    ("exp", 1e-9, 88.7228, 211, 1),
    ("exp", -1e-9, -87.33, 211, 1),
    ("exp", -87.33, -110.0, 3, 1),  # subnormal, then 0
    ("log", 1e-45, 3.4e38, 509, 1),
    ("log", 0.4, 2.5, 5, 1),
    ("tanh", 1e-37, 0.01, 2003, 3),
    ("tanh", -0.01, -30.0, 211, 3),
    ("tanh", 30.0, 3.4e38, 20011, 1),
    ("erf", 1e-37, 0.01, 2003, 4),
    ("erf", -0.01, -10.0, 211, 4),
    ("erf", 10.0, 3.4e38, 20011, 1),
]


@pytest.mark.parametrize(("name", "low", "high", "step", "bound"), RANGES)
def test_functions_are_right_within_some_ulp(
    name: str, low: float, high: float, step: int, bound: float
) -> None:
    """And the same in C and in NumPy."""
    x = floats(low, high, step)
    given = getattr(_exact, name)(x)
    assert errors(given, RIGHT[name](x.astype(np.float64))).max() < bound
    assert_same_bits(kernel(name, x), given)


def test_functions_at_their_ends() -> None:
    ends = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    x = np.array([*ends, 88.73, -104.0, 1e30, -1e30], np.float32)
    right = np.array([np.nan, np.inf, 0, 1, 1, np.inf, 0, np.inf, 0], np.float32)
    np.testing.assert_array_equal(_exact.exp(x), right)
    x = np.array([*ends, -1e-45, 1.0], np.float32)
    right = np.array([np.nan, np.inf, np.nan, -np.inf, -np.inf, np.nan, 0], np.float32)
    np.testing.assert_array_equal(_exact.log(x), right)
    x = np.array([*ends, 1e-45, -1e-45, 1e30, -1e30], np.float32)
    for function in (_exact.tanh, _exact.erf):
        right = np.array([np.nan, 1, -1, 0, -0.0, 1e-45, -1e-45, 1, -1], np.float32)
        np.testing.assert_array_equal(function(x), right)
        np.testing.assert_array_equal(np.signbit(function(x))[1:], np.signbit(right)[1:])


erfc = np.frompyfunc(math.erfc, 1, 1)


def below(x: Array) -> Array:
    """The normal distribution function, also far below 0."""
    return np.asarray(0.5 * erfc(-x.astype(np.float64) / math.sqrt(2)), np.float64)


def density(x: Array) -> Array:
    return np.asarray(np.exp(-0.5 * x.astype(np.float64) ** 2) / math.sqrt(2 * math.pi))


NORMAL = [(1e-37, 0.01), (0.01, 13.0), (-1e-37, -0.01), (-0.01, -1.0), (-1.0, -4.0), (-4.0, -12.9)]


@pytest.mark.parametrize(("low", "high"), NORMAL)
def test_the_normal_distribution_is_right(low: float, high: float) -> None:
    """Within 6 ulp, and within x^2 / 2 ulp more far from 0, because x^2 is rounded before `exp`."""
    x = floats(low, high, 211 if abs(high) > 0.01 else 2003)
    more = 0.5 * x.astype(np.float64) ** 2
    left, slope = _exact.normal(x)
    assert (errors(left, below(x)) - np.where(x < 0, more, 0)).max() < 6
    assert (errors(slope, density(x)) - more).max() < 4
    assert_same_bits(kernel("gelu", x), x * left)
    ones = np.ones_like(x)
    assert_same_bits(kernel("gelu_dx", ones, x), ones * (left + x * slope))


@pytest.mark.parametrize(("low", "high"), NORMAL)
def test_gelu_with_tanh_is_right(low: float, high: float) -> None:
    """Within 6 ulp, and below 0 within 6 |z| ulp more: z, a cubic, is rounded before `exp`."""
    x = floats(low, max(min(high, 9.0), -9.0), 211 if abs(high) > 0.01 else 2003)
    double = x.astype(np.float64)
    z = math.sqrt(2 / math.pi) * (double + 0.044715 * double**3)
    right = np.where(
        z < 0, double * np.exp(2 * z) / (1 + np.exp(2 * z)), double / (1 + np.exp(-2 * z))
    )
    given = kernel("gelu_tanh", x)
    assert (errors(given, right) - 6 * np.where(x < 0, -z, 0)).max() < 6
    assert_same_bits(given, GeluTanh.exact(Attributes(), x))


VECTORS = ("exp", "sigmoid", "silu", "tanh", "erf", "gelu", "gelu_tanh")
VECTORS += ("swiglu", "geglu", "geglu_tanh")


@pytest.mark.parametrize("flags", [PORTABLE.flags, HOST.flags], ids=["portable", "host"])
@pytest.mark.parametrize("name", VECTORS)
def test_compilers_vectorize_the_loops(name: str, flags: tuple[str, ...]) -> None:
    """Both the function's and its derivative's, as programs are built: 3 to 24 times faster."""
    path = c_kernels.KERNELS / "ref" / f"{name}.c"
    folders = [f"-I{c_kernels.KERNELS}", f"-I{path.parent}"]
    command = ["gcc", "-std=c11", *flags, *folders, "-fopt-info-vec-optimized", "-c", str(path)]
    done = subprocess.run([*command, "-o", "/dev/null"], capture_output=True, text=True, check=True)
    found = set(re.findall(rf"{name}\.c:(\d+):\d+: optimized: loop vectorized", done.stderr))
    assert len(found) == 2
    assert Op.registry[name].exact is not None
