"""What `from_jax` takes and refuses: names, types, loops, rules for gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from whet.errors import FrontendError
from whet.models import from_jax, to_jax

pytestmark = pytest.mark.slow  # jax is installed for the slow tests only


def test_a_rule_for_gradients_is_not_used_and_said_so() -> None:
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return x * 1.0

    @jax.custom_jvp
    def relu(x: Any) -> Any:
        return jnp.maximum(x, 0)

    doubled.defvjp(lambda x: (doubled(x), None), lambda _, g: (2 * g,))
    relu.defjvp(lambda primals, tangents: (relu(primals[0]), 3 * tangents[0]))
    with pytest.warns(UserWarning, match="gradient of doubled by jax.custom_vjp is not used"):
        from_jax(lambda p, x: doubled(p * x), jnp.ones(3), jnp.ones(3))
    with pytest.warns(UserWarning, match="gradient of relu by jax.custom_jvp is not used"):
        from_jax(lambda p, x: relu(p * x), jnp.ones(3), jnp.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_jax(lambda p, x: jax.nn.relu(p * x) + jax.nn.softplus(x), jnp.ones(3), jnp.ones(3))
        from_jax(lambda p, x: p * relu(jnp.ones(3)) + x, jnp.ones(3), jnp.ones(3))


def test_loops_without_steps_and_prints() -> None:
    import jax
    import jax.numpy as jnp

    def function(p: Any, x: Any) -> Any:
        jax.debug.print("{}", x)
        return jax.lax.scan(lambda c, a: (c + a, a * 2), p, x[:0])

    p, x = jnp.ones(3), jnp.ones((2, 3))
    last, each = from_jax(function, p, x)(torch.ones(2, 3))
    assert torch.equal(last, torch.ones(3)) and each.shape == (0, 3)


def test_keys_of_the_random_generator_are_refused() -> None:
    import jax
    import jax.numpy as jnp

    key, x = jax.random.key(0), jnp.ones(3)
    with pytest.raises(FrontendError, match="'k' of the parameters is a key"):
        from_jax(lambda p, x: x, {"k": key}, x)
    with pytest.raises(FrontendError, match="input 1 is a key"):
        from_jax(lambda p, x, k: x, {"w": x}, x, key)


def test_names_that_look_the_same() -> None:
    import jax.numpy as jnp

    params = {"a/b": jnp.ones(3), "a": {"b": jnp.zeros(3)}, "params/c": jnp.ones(3)}
    module = from_jax(lambda p, x: p["a/b"] * x + p["a"]["b"], params, jnp.ones(3))
    assert torch.equal(module(torch.ones(3)), torch.ones(3))
    back = to_jax(module)
    assert float(back["a/b"][0]) == 1 and float(back["a"]["b"][0]) == 0
    params["params"] = {"w": jnp.ones(3)}
    module = from_jax(lambda p, x: p["params"]["w"] * x, params, jnp.ones(3))
    assert [name for name, _ in module.named_parameters()] == ["w"]


def test_inputs_of_numpy_and_numbers() -> None:
    import jax
    import jax.numpy as jnp

    for example in (np.ones((2, 3)), np.float64(3), jax.ShapeDtypeStruct((), jnp.float32)):
        module = from_jax(lambda p, x: p * x, jnp.ones(3), example)
        [made] = module.example(batch=2)
        assert made.shape == example.shape and made.dtype == torch.float32


def test_parameters_of_bfloat16_go_back() -> None:
    import jax.numpy as jnp

    p = jnp.arange(3, dtype=jnp.bfloat16)
    assert (to_jax(from_jax(lambda p, x: p * x, p, jnp.ones(3, jnp.bfloat16))) == p).all()
