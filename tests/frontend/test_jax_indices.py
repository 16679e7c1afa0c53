"""Indices of JAX: inside an array, outside it, known, and given by an input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from against_jax import INPUT, WEIGHTS, agrees, agrees_in_c, outputs
from whet.errors import UnsupportedOps

pytestmark = pytest.mark.slow  # jax is installed for the slow tests only
OUTSIDE = np.array([0, 5, -9, 3], np.int32)  # of a table with 4 lines


@pytest.mark.parametrize("mode", ["fill", "clip", "wrap", None])
def test_an_index_outside(mode: str | None) -> None:
    import jax.numpy as jnp

    ids, kept = jnp.asarray(OUTSIDE), None if mode == "wrap" else mode
    agrees(lambda p, n: jnp.take(p, n, axis=0, mode=mode), WEIGHTS, OUTSIDE)
    agrees(lambda p, n: jnp.take(p, n.reshape(2, 2), axis=1, mode=mode), WEIGHTS, OUTSIDE)
    agrees(lambda p, x: jnp.take(p, ids, axis=1, mode=mode) * x, WEIGHTS, INPUT)
    agrees(lambda p, x: p.at[9].get(mode=kept) * x, WEIGHTS, INPUT, gradient=kept is not None)
    agrees(lambda p, x: p.at[ids, 1].get(mode=kept or "clip") * x, WEIGHTS, INPUT)
    agrees(
        lambda p, n: jnp.take(jnp.arange(4) + n[0], n, axis=0, mode=mode),
        WEIGHTS, OUTSIDE, gradient=False,
    )  # fmt: skip


def parts(p: Any, x: Any) -> Any:
    """Parts at known places, read and replaced."""
    import jax.numpy as jnp

    outside = jnp.array([9, 0, -7, 1])
    some = jnp.take(p, outside, axis=1, mode="clip") * x
    filled = p.at[jnp.array([1, 9])].get(mode="fill", fill_value=2.0).sum(0)
    along = jnp.take_along_axis(x, jnp.array([[0], [3], [2], [1]]), 1)
    changed = x.at[jnp.array([1, 3])].add(p[:2]) + p.at[1:3, ::2].set(x[:2, :2]).at[9].set(x[0])
    return some + filled + along + changed


def test_parts_at_known_places() -> None:
    import jax.numpy as jnp

    agrees(parts, WEIGHTS, INPUT)
    with pytest.raises(UnsupportedOps, match="a place is increased more than once"):
        outputs(lambda p, x: x.at[jnp.array([1, 1])].add(p[:2]), WEIGHTS, INPUT)


def test_what_is_replaced_may_be_infinite() -> None:
    import jax

    def function(p: Any, x: Any) -> Any:
        return jax.lax.dynamic_update_slice(x / 0, p[1:3], (1, 0)) * p

    agrees(function, WEIGHTS, np.abs(INPUT) + 0.1, gradient=False)


def test_programs_compute_the_same() -> None:
    import jax.numpy as jnp

    def function(p: Any, n: Any) -> Any:
        filled = jnp.take(p, n, axis=0, mode="fill", fill_value=0.5)
        return filled + jnp.take(p, n, axis=0, mode="clip") + parts(p, p)

    agrees_in_c(function, WEIGHTS, OUTSIDE)
