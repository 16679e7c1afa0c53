"""Numbers that JAX and PyTorch compute differently: integers, bounds, small types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import whet
from against_jax import INPUT, WEIGHTS, Function, agrees, agrees_in_c, outputs
from whet.errors import UnsupportedOps
from whet.models import from_jax

pytestmark = pytest.mark.slow  # jax is installed for the slow tests only
NUMBERS = np.array([3, -7, 5, -2], np.int32)


def integers(lax: Any, jnp: Any) -> dict[str, Function]:
    return {
        "not": lambda n: ~n,
        "and": lambda n: n & 6,
        "or": lambda n: 6 | n,
        "xor": lambda n: n ^ 5,
        "logic of conditions": lambda n: ~((n > 0) & (n < 4)) | (n == -7) ^ (n > 3),
        "div by a number": lambda n: lax.div(n, 2),
        "div of a number": lambda n: lax.div(9, n),
        "div of two": lambda n: lax.div(n, jnp.array([2, 2, -3, 3])),
        "floor_divide": lambda n: n // 2,
        "max": lambda n: jnp.maximum(n, 0) + jnp.minimum(n, n[::-1]),
        "clamp": lambda n: lax.clamp(-2, n, 3),
        "sum": lambda n: n.sum(),
        "prod": lambda n: jnp.prod(n),
        "cumsum of bytes": lambda n: jnp.cumsum(n.astype(jnp.uint8), dtype=jnp.uint8),
        "dot": lambda n: n @ n,
        "windows": lambda n: lax.reduce_window_max_p.bind(
            n.reshape(2, 2), window_dimensions=(1, 2), window_strides=(1, 1),
            padding=((0, 0), (1, 0)), base_dilation=(1, 1), window_dilation=(1, 1),
        ),
    }  # fmt: skip


def test_integers() -> None:
    import jax.numpy as jnp
    from jax import lax

    for function in integers(lax, jnp).values():
        agrees(lambda p, n, f=function: f(n), WEIGHTS, NUMBERS, gradient=False)


def test_bits_and_quotients_of_integers_are_refused_in_programs() -> None:
    import jax.numpy as jnp
    from jax import lax

    functions: list[Function] = [
        lambda p, n: p * (n & 6),
        lambda p, n: p * lax.div(n, 2),
        lambda p, n: p * (p * n).astype(jnp.uint8),
        lambda p, n: p * lax.reduce_precision(p * n, 8, 7),
    ]
    for function in functions:
        module = from_jax(function, jnp.asarray(WEIGHTS), jnp.asarray(NUMBERS))
        with pytest.raises(UnsupportedOps):
            whet.compile(module, (torch.from_numpy(NUMBERS),))
    with pytest.raises(UnsupportedOps, match="the bits of integers"):
        outputs(lambda p, n: lax.reduce_and(n, (0,)), WEIGHTS, NUMBERS)


def test_small_types() -> None:
    import jax.numpy as jnp
    from jax import lax

    wide = np.array([300.0, -300.0, np.nan, 3.7], np.float32)
    for kind in (jnp.uint8, jnp.int8):
        agrees(lambda p, x, to=kind: x.astype(to), WEIGHTS, wide, gradient=False)
    for bits in ((8, 7), (5, 10), (8, 23)):
        agrees(lambda p, x, b=bits: lax.reduce_precision(p * x, *b), WEIGHTS, INPUT)
    with pytest.raises(UnsupportedOps, match="4 bits of exponent and 3 of mantissa"):
        outputs(lambda p, x: lax.reduce_precision(p * x, 4, 3), WEIGHTS, INPUT)


def test_products_have_the_type_that_is_preferred() -> None:
    import jax.numpy as jnp

    def wide(p: Any, x: Any) -> Any:
        return jnp.dot(
            p.astype(jnp.bfloat16), x.astype(jnp.bfloat16), preferred_element_type=jnp.float32
        )

    agrees(wide, WEIGHTS, INPUT)
    agrees(
        lambda p, x: jnp.dot(p, x, preferred_element_type=jnp.bfloat16),
        WEIGHTS, INPUT, gradient=False,
    )  # fmt: skip
    agrees(lambda p, x: p @ x, WEIGHTS[0], INPUT[0])


def corners(p: Any, x: Any) -> Any:
    """Every term is at a corner somewhere in `AT_CORNERS`."""
    import jax
    import jax.numpy as jnp

    return (
        jnp.maximum(p, 0) * x + jnp.clip(p, -1, 1) + jax.lax.clamp(-1.0, p, 1.0) * x
        + jax.nn.relu(p) + jax.nn.relu6(p) * x + jnp.minimum(p, x) + jnp.minimum(1.0, p)
    )  # fmt: skip


AT_CORNERS = np.array([[-1, 0, 1, 6]], np.float32).repeat(4, 0)


def test_gradients_at_corners() -> None:
    import jax
    import jax.numpy as jnp

    x = np.array([[-1, 0, 1, 3]], np.float32).repeat(4, 0)
    agrees(corners, AT_CORNERS, x)
    agrees(lambda p, x: jax.nn.softplus(p) + jnp.logaddexp(p, x) * x, AT_CORNERS, x)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_windows_of_very_small_numbers(kind: str) -> None:
    from flax import linen as nn

    low = -np.inf if kind == "float16" else -3.4e38

    def function(p: Any, x: Any) -> Any:
        return nn.max_pool((p + low)[None, :, :, None].astype(kind), (3, 3), (2, 2), "SAME")

    agrees(function, WEIGHTS - 1e37, INPUT)


def test_programs_compute_the_same() -> None:
    import jax.numpy as jnp

    agrees_in_c(
        lambda p, n: corners(p, 1.0) + p * jnp.maximum(~n, 1)[:, None] + p.sum(1) * n.sum(),
        AT_CORNERS,
        NUMBERS,
    )
