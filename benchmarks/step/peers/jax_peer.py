"""JAX: one jitted function from parameters to parameters, channels last."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .case import RATE, Case, forward

SPACE = (1, 2)


def conv(x: Any, weight: Any, bias: Any = 0.0, *, stride: int, padding: int, groups: int) -> Any:
    y = lax.conv_general_dilated(
        x, weight, (stride, stride), [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
    )  # fmt: skip
    return y + bias


def norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *, eps: float, momentum: float
) -> tuple[Any, Any, Any]:
    count = x.size // x.shape[-1]
    m, v = jnp.mean(x, (0, *SPACE)), jnp.var(x, (0, *SPACE))
    y = (x - m) * (weight * lax.rsqrt(v + eps)) + bias
    unbiased = v * (count / (count - 1))
    return y, mean + momentum * (m - mean), variance + momentum * (unbiased - variance)


def max_pool(x: Any, *, kernel: int, stride: int, padding: int) -> Any:
    window, strides = (1, kernel, kernel, 1), (1, stride, stride, 1)
    edges = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, edges)


OPS: dict[str, Callable[..., Any]] = {
    "conv": conv,
    "norm": norm,
    "max_pool": max_pool,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "add": jnp.add,
    "pool": lambda x: jnp.mean(x, SPACE),
    "flatten": lambda x: x.reshape(len(x), -1),
    "linear": lambda x, weight, bias: x @ weight.T + bias,
}


def prepare(case: Case, threads: int, variant: str) -> Callable[[], float]:
    """XLA takes its number of threads from the CPUs that the process may use."""
    tensors = {name: jnp.asarray(a) for name, a in case.channels_last().items()}
    trained = {name: tensors.pop(name) for name in case.trained}
    x, y = jnp.asarray(case.x.transpose(0, 2, 3, 1)), jnp.asarray(case.y)

    def loss_of(trained: Any, other: Any, x: Any, y: Any) -> tuple[Any, Any]:
        logits, changed = forward(case.layers, x, {**other, **trained}, OPS)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
        return -jnp.mean(chosen), changed

    @functools.partial(jax.jit, donate_argnums=0)
    def step(trained: Any, other: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
        (loss, changed), slopes = jax.value_and_grad(loss_of, has_aux=True)(trained, other, x, y)
        return loss, jax.tree.map(lambda p, g: p - RATE * g, trained, slopes), changed

    def run() -> float:
        nonlocal trained
        loss, trained, changed = step(trained, tensors, x, y)
        tensors.update(changed)
        return float(loss)

    return run
