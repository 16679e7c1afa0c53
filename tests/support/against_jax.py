"""A function of JAX against the module that `from_jax` makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import whet
from whet.models import from_jax

Function = Callable[..., Any]
WEIGHTS = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
INPUT = np.cos(np.arange(16, dtype=np.float32)).reshape(4, 4)


def outputs(function: Function, p: Any, x: Any) -> tuple[torch.Tensor, Any, torch.nn.Module]:
    """By PyTorch and by JAX."""
    import jax.numpy as jnp

    module = from_jax(function, jnp.asarray(p), jnp.asarray(x))
    return module(torch.from_numpy(np.array(x))), function(jnp.asarray(p), jnp.asarray(x)), module


def agrees(function: Function, p: Any, x: Any, gradient: bool = True) -> None:
    """Outputs, their types, and gradients of their sum."""
    import jax
    import jax.numpy as jnp

    ours, theirs, module = outputs(function, p, x)
    assert str(ours.dtype) == f"torch.{theirs.dtype}"
    np.testing.assert_allclose(
        ours.detach().double().numpy(), np.asarray(theirs, np.float64), rtol=1e-5, atol=1e-6
    )
    if not gradient:
        return
    ours.float().sum().backward()
    wanted = jax.grad(lambda p: function(p, jnp.asarray(x)).astype(float).sum())(jnp.asarray(p))
    [parameter] = module.parameters()
    assert parameter.grad is not None
    np.testing.assert_allclose(parameter.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)


def agrees_in_c(function: Function, p: Any, x: Any) -> None:
    _, theirs, module = outputs(function, p, x)
    given = torch.from_numpy(np.array(x))
    program = whet.compile(module, (given,))
    np.testing.assert_allclose(program.load().predict(given), theirs, rtol=1e-5, atol=1e-5)
    assert max(program.check(steps=1).gradients.values()) < 1e-5
