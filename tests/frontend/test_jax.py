"""Functions of JAX against JAX: outputs, `jax.grad`, weights back, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import whet
from whet.errors import FrontendError, UnsupportedOps
from whet.models import from_jax, to_jax

pytestmark = pytest.mark.slow  # jax and flax are installed for the slow tests only
NAMES = ("cnn", "convnext", "decoder", "lstm", "mlp", "residual", "transformer")


def tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(x))


def by_path(tree: Any) -> dict[str, np.ndarray[Any, Any]]:
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in leaves
    }


def test_all_models_are_tested() -> None:
    import flax_models

    assert set(NAMES) == set(flax_models.MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_jax(name: str) -> None:
    import jax
    import jax.numpy as jnp

    import flax_models

    model, variables, x = flax_models.made(name)
    labels = jnp.arange(4)

    def loss(params: Any) -> Any:
        scores = jax.nn.log_softmax(model.apply({**variables, "params": params}, x))
        return -(scores * jax.nn.one_hot(labels, 5)).sum(-1).mean()

    module = from_jax(model.apply, variables, x)
    theirs = np.asarray(model.apply(variables, x))
    ours = module(tensor(x))
    assert np.abs(ours.detach().numpy() - theirs).max() < 1e-5 * max(1, np.abs(theirs).max())
    torch.nn.functional.cross_entropy(ours, tensor(labels).long()).backward()
    gradients = by_path(jax.grad(loss)(variables["params"]))
    assert len(gradients) == len(list(module.parameters()))
    largest = max(np.abs(g).max() for g in gradients.values())
    for path, gradient in gradients.items():
        found = module.tensor(f"params/{path}").grad
        assert found is not None and np.abs(found.numpy() - gradient).max() < 1e-5 * largest, path
    report = whet.compile(module, (tensor(x),)).check(steps=3)
    # A softmax does not see what is added to all scores, so that the bias of keys has no gradient.
    real = {name: error for name, error in report.gradients.items() if "key.bias" not in name}
    assert max(real.values()) < 1e-4
    assert max(report.parameters.values()) < 1e-4


def test_names_batches_and_weights_back() -> None:
    import flax_models

    model, variables, x = flax_models.made("residual")
    module = from_jax(model.apply, variables, x)
    names = dict(module.named_parameters())
    assert "Conv_0.kernel" in names and "Dense_0.bias" in names
    assert "batch_stats.BatchNorm_0.mean" in dict(module.named_buffers())
    one = np.asarray(model.apply(variables, x[:1]))
    assert np.abs(module(tensor(x[:1])).detach().numpy() - one).max() < 1e-5
    trainer = whet.compile(module, (tensor(x),)).load()
    for _ in range(3):
        trainer.step(tensor(x), torch.arange(4), lr=0.1)
    module.load_state_dict(trainer.state_dict(), strict=False)
    back = to_jax(module)
    assert np.abs(np.asarray(model.apply(back, x)) - trainer.predict(tensor(x))).max() < 1e-5
    with pytest.raises(FrontendError, match="did not come from JAX"):
        to_jax(torch.nn.Linear(2, 2))  # type: ignore[arg-type]


def test_modules_of_nnx() -> None:
    import jax.numpy as jnp
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(4, 8, rngs=rngs)
            self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
            self.head = nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.head(nnx.relu(self.norm(self.first(x))))

    net, x = Net(nnx.Rngs(0)), jnp.linspace(-1, 1, 8).reshape(2, 4)
    graph, params, rest = nnx.split(net, nnx.Param, ...)
    module = from_jax(lambda params, x: nnx.merge(graph, params, rest)(x), params, x)
    assert "first.kernel" in dict(module.named_parameters())
    assert np.abs(module(tensor(x)).detach().numpy() - np.asarray(net(x))).max() < 1e-6
    with torch.no_grad():
        module.get_parameter("head.bias").add_(1.0)
    nnx.update(net, to_jax(module))
    assert np.abs(module(tensor(x)).detach().numpy() - np.asarray(net(x))).max() < 1e-6


PRIMITIVES = {
    "arithmetic": lambda p, x, jnp: jnp.sin(x) * jnp.cos(p) + jnp.exp(-x) / (2 + jnp.abs(p)) - 3**x,
    "powers": lambda p, x, jnp: jnp.sqrt(1 + x**2) + (1 + p * p) ** 0.3 + jnp.cbrt(2 + p) + x**5,
    "choices": lambda p, x, jnp: (
        jnp.where(x > 0, p, x) + jnp.clip(p, -0.5, 0.5) + jnp.maximum(p, x)
    ),
    "others": lambda p, x, jnp: jnp.logaddexp(p, x) + jnp.log1p(x * x) + jnp.expm1(p) - 1 / (3 + p),
    "sums": lambda p, x, jnp: jnp.cumsum(p * x, 1) + x.sum(0) - p.max(1, keepdims=True) + x.min(),
    "spread": lambda p, x, jnp: jnp.std(p, axis=1) + jnp.var(x) + jnp.linalg.norm(p, axis=1),
    "moving": lambda p, x, jnp: (
        jnp.tile(p, (1, 2)) + jnp.repeat(x, 2, 1) + jnp.roll(p, 1, 0)[:, :1]
    ),
    "index": lambda p, x, jnp: p[1] * x[:, 2:3] + jnp.take(p, jnp.array([2, 0, 1, 3]), axis=1),
    "product": lambda p, x, jnp: p.T @ x + jnp.einsum("ij,kj->ik", p, x) + jnp.outer(p[0], x[0]),
}


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_a_primitive_is_that_of_jax(name: str) -> None:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    p, x = (jnp.asarray(rng.uniform(-1, 1, (4, 4)).astype(np.float32)) for _ in range(2))

    def function(p: Any, x: Any) -> Any:
        return PRIMITIVES[name](p, x, jnp)

    module = from_jax(function, p, x)
    out, theirs = module(tensor(x)), np.asarray(function(p, x))
    assert out.shape == theirs.shape and np.abs(out.detach().numpy() - theirs).max() < 1e-5
    factor = jnp.asarray(rng.uniform(-1, 1, theirs.shape).astype(np.float32))
    (out * tensor(factor)).sum().backward()
    gradient = np.asarray(jax.grad(lambda p: (function(p, x) * factor).sum())(p))
    [parameter] = module.parameters()
    assert parameter.grad is not None
    assert np.abs(parameter.grad.numpy() - gradient).max() < 1e-5


def test_a_part_at_a_known_place_is_replaced() -> None:
    import jax
    import jax.numpy as jnp

    def function(p: Any, x: Any) -> Any:
        return jax.lax.dynamic_update_slice(x, p[1:3, 1:], (1, 1)) * p

    p, x = jnp.arange(16.0).reshape(4, 4), jnp.ones((4, 4)) * 0.5
    out = from_jax(function, p, x)(tensor(x))
    assert np.abs(out.detach().numpy() - np.asarray(function(p, x))).max() < 1e-6


def test_loops_calls_and_checkpoints_are_unrolled() -> None:
    import jax
    import jax.numpy as jnp

    @jax.checkpoint
    def step(carry: Any, x: Any) -> Any:
        new = jnp.tanh(carry + x)
        return new, new.sum()

    for reverse in (False, True):

        def function(p: Any, x: Any, reverse: bool = reverse) -> Any:
            last, sums = jax.lax.scan(step, p, x, reverse=reverse)
            return last * sums.mean() + sums[0]

        p, x = jnp.ones(3) * 0.3, jnp.linspace(-1, 1, 15).reshape(5, 3)
        module = from_jax(jax.jit(function), p, x)
        out = module(tensor(x))
        assert np.abs(out.detach().numpy() - np.asarray(function(p, x))).max() < 1e-6
        out.sum().backward()
        gradient = np.asarray(jax.grad(lambda p, x, f=function: f(p, x).sum())(p, x))
        [parameter] = module.parameters()
        assert parameter.grad is not None
        assert np.abs(parameter.grad.numpy() - gradient).max() < 1e-5


def test_all_unknown_primitives_are_listed_at_once() -> None:
    import jax
    import jax.numpy as jnp

    def function(p: Any, x: Any) -> Any:
        return jnp.sort(x @ p) + jax.lax.while_loop(lambda a: a.sum() < 9, lambda a: a * 2, p)

    with pytest.raises(UnsupportedOps, match="2 primitives of this JAX function: sort, while"):
        from_jax(function, jnp.ones((4, 4)), jnp.ones((4, 4)))
    with pytest.raises(UnsupportedOps, match="scan of JAX with 5,000 steps"):
        from_jax(
            lambda p, x: jax.lax.scan(lambda c, _: (c * p, None), x, length=5000)[0],
            jnp.ones(3),
            jnp.ones(3),
        )


def test_what_jax_knows_it_computes() -> None:
    """Numbers that depend on no input or parameter need no primitive of ours."""
    import jax
    import jax.numpy as jnp

    def function(p: Any, x: Any) -> Any:
        noise = jax.random.normal(jax.random.key(0), (4,))
        return x * p + jnp.sort(noise)

    p, x = jnp.ones(4), jnp.ones((2, 4))
    out = from_jax(function, p, x)(tensor(x))
    assert np.abs(out.detach().numpy() - np.asarray(function(p, x))).max() < 1e-6


def test_bad_arguments() -> None:
    import jax.numpy as jnp

    with pytest.raises(FrontendError, match="is not a function"):
        from_jax(3, {}, jnp.ones(3))  # type: ignore[arg-type]
    with pytest.raises(FrontendError, match="has no inputs"):
        from_jax(lambda p: p, jnp.ones(3))
    with pytest.raises(FrontendError, match="JAX cannot trace the function"):
        from_jax(lambda p, x: p @ x, jnp.ones((3, 4)), jnp.ones((3, 4)))
    with pytest.raises(FrontendError, match="is a str, not an array"):
        from_jax(lambda p, x: x, {"a": "b"}, jnp.ones(3))
