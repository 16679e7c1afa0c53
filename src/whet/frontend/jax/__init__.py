"""Functions of JAX as PyTorch modules; the only package that imports JAX."""

from .load import from_jax as from_jax
from .load import to_jax as to_jax
