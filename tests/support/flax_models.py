"""Small models of Flax, each with an input of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for width in (16, 16):
            x = nn.tanh(nn.Dense(width)(x))
        return nn.Dense(5)(x)


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.gelu(nn.GroupNorm(4)(nn.Conv(8, (3, 3), feature_group_count=8, strides=2)(x)))
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


class Residual(nn.Module):
    """Batch norms of inference, as when a pretrained model is fine-tuned."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(8, (3, 3), use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        y = nn.BatchNorm(use_running_average=True)(nn.Conv(8, (3, 3), use_bias=False)(y))
        x = nn.avg_pool(nn.relu(x + y), (3, 3), strides=(2, 2), padding="SAME")
        return nn.Dense(5)(x.mean((1, 2)))


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, ids: Any) -> Any:
        x = nn.Embed(20, 16)(ids) + nn.Embed(8, 16)(jnp.arange(ids.shape[1]))
        mask = nn.make_causal_mask(ids)
        for _ in range(2):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(2)(y, y, mask=mask)
            x = x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x)), approximate=False))
        return nn.Dense(5)(nn.RMSNorm()(x).mean(1))


class Lstm(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(5)(nn.RNN(nn.OptimizedLSTMCell(8))(x)[:, -1])


class ConvNext(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.LayerNorm()(nn.Conv(8, (2, 2), strides=2)(x))
        y = nn.LayerNorm()(nn.Conv(8, (5, 5), feature_group_count=8)(x))
        y = nn.Dense(8)(nn.gelu(nn.Dense(16)(y)))
        scale = self.param("scale", nn.initializers.constant(0.5), (8,))
        return nn.Dense(5)(nn.LayerNorm()((x + scale * y).mean((1, 2))))


class Decoder(nn.Module):
    """Transposed convolutions, and other ways to move elements."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.silu(nn.ConvTranspose(4, (3, 3), strides=(2, 2))(x))
        left, right = jnp.split(x, 2, axis=-1)
        x = jnp.concatenate([left[:, ::2], jnp.flip(right, 2)[:, 1::2]], -1)
        x = jnp.pad(x, ((0, 0), (1, 0), (0, 2), (0, 0)))
        return nn.Dense(5)(
            jnp.einsum("bhwc,dc->bd", x, self.param("w", nn.initializers.ones, (6, 4)))
        )


def picture(key: Any) -> Any:
    return jax.random.normal(key, (4, 8, 8, 3))


MODELS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "mlp": (Mlp(), lambda key: jax.random.normal(key, (4, 7))),
    "cnn": (Cnn(), picture),
    "residual": (Residual(), picture),
    "transformer": (Transformer(), lambda key: jax.random.randint(key, (4, 8), 0, 20)),
    "lstm": (Lstm(), lambda key: jax.random.normal(key, (4, 6, 3))),
    "convnext": (ConvNext(), picture),
    "decoder": (Decoder(), picture),
}


def made(name: str) -> tuple[Any, dict[str, Any], Any]:
    """The model, its variables with statistics that are not 0 and 1, and an input."""
    model, draw = MODELS[name]
    key = jax.random.key(1)
    x = draw(key)
    variables = model.init(jax.random.key(0), x)
    if "batch_stats" in variables:
        variables["batch_stats"] = jax.tree.map(
            lambda a: jax.random.uniform(key, a.shape, minval=0.5, maxval=1.5),
            variables["batch_stats"],
        )
    return model, variables, x
