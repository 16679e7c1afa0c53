"""A function of JAX with its parameters becomes a PyTorch module."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import FrontendError
from ..torch.interpreted import Input, Interpreted
from .package import jax
from .rows import as_tensor
from .walk import JaxWalk, name_of, refuse_unknown

TRAINED = "params"  # the collection of Flax that trains; others are statistics


class JaxModel(Interpreted):
    """A function of JAX: the leaves of its first argument are parameters, named by path."""

    walk: JaxWalk


def from_jax(function: Callable[..., Any], params: Any, *inputs: Any) -> JaxModel:
    """`function(params, *inputs)` of JAX as a PyTorch module.

    `params` is any pytree; its floats train, its integers do not. In a tree with the key
    "params", as `init` of Flax makes it, only what is below that trains. `inputs` are examples or
    `jax.ShapeDtypeStruct`; the first axis is taken as the batch, and the function is traced again
    for another one. `to_jax` gives the pytree back, with the weights of the module.
    """
    package = jax()
    if not callable(function):
        raise FrontendError(
            f"{type(function).__name__} is not a function",
            try_="from_jax(model.apply, variables, x)",
        )
    if not inputs:
        raise FrontendError(
            "the function has no inputs", try_="from_jax(function, params, jnp.zeros((1, 28, 28)))"
        )
    named, tree = package.tree_util.tree_flatten_with_path(params)
    keys = dict(zip(names_of([path for path, _ in named]), named, strict=True))
    leaves = {name: leaf_of(name, leaf) for name, (_, leaf) in keys.items()}
    collections = isinstance(params, Mapping) and TRAINED in params
    trained: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for name, leaf in leaves.items():
        first = keys[name][0][:1]
        trains = leaf.is_floating_point() and (not collections or path_of(first) == TRAINED)
        (trained if trains else others)[name] = leaf
    shapes = [package.ShapeDtypeStruct(tuple(x.shape), name_of(x.dtype)) for x in leaves.values()]
    walk = JaxWalk(function, list(leaves), shapes, tree)
    declared = [declared_as(i, x) for i, x in enumerate(inputs)]
    refuse_unknown(walk.program([(shape, name_of(kind)) for shape, kind in declared]))
    readable = {path: module_path(path, collections) for path in leaves}
    given = [
        Input(f"input{i}", kind, (None, *shape[1:]) if shape else ())
        for i, (shape, kind) in enumerate(declared)
    ]
    return JaxModel(walk, given, trained, others, readable)


def path_of(keys: Sequence[Any]) -> str:
    return str(jax().tree_util.keystr(tuple(keys), simple=True, separator="/"))


def names_of(paths: Sequence[Sequence[Any]]) -> list[str]:
    """Of leaves: their paths, with a number where two look the same, as a/b and {"a/b": ...}."""
    found: dict[str, None] = {}
    for path in map(path_of, paths):
        name, count = path, 1
        while name in found:
            count += 1
            name = f"{path}_{count}"
        found[name] = None
    return list(found)


def module_path(path: str, collections: bool) -> str:
    """As modules of PyTorch may be called: torch.export writes names into Python code."""
    inside = path.removeprefix(f"{TRAINED}/") if collections else path
    parts = (inside.removesuffix("/value") or TRAINED).split("/")
    return ".".join(f"{part}_" if keyword.iskeyword(part) else part for part in parts)


def leaf_of(path: str, leaf: Any) -> Tensor:
    if not hasattr(leaf, "shape") and not isinstance(leaf, (int, float)):
        raise FrontendError(f"{path!r} of the parameters is a {type(leaf).__name__}, not an array")
    refuse_key(f"{path!r} of the parameters", leaf)
    array = np.asarray(leaf)
    return as_tensor(
        array.astype(np.float32) if array.dtype == np.float64 else array, torch.float32
    )


def declared_as(i: int, example: Any) -> tuple[tuple[int, ...], torch.dtype]:
    if not hasattr(example, "shape") or not hasattr(example, "dtype"):
        raise FrontendError(
            f"input {i} is a {type(example).__name__}, not an array", try_="jnp.zeros((1, 28, 28))"
        )
    refuse_key(f"input {i}", example)
    kind = example.dtype
    if not isinstance(kind, torch.dtype):
        found = getattr(torch, np.dtype(kind).name, None)
        if not isinstance(found, torch.dtype):
            raise FrontendError(f"input {i} is of type {kind}, which whet does not know")
        kind = found
    kind = torch.float32 if kind == torch.float64 else kind  # as JAX computes by default
    return tuple(map(int, example.shape)), kind


def refuse_key(what: str, value: Any) -> None:
    """Keys of JAX's random generator are no arrays of numbers."""
    dtypes = jax().dtypes
    kind = getattr(value, "dtype", None)
    if hasattr(kind, "name") and dtypes.issubdtype(kind, dtypes.prng_key):
        raise FrontendError(
            f"{what} is a key of JAX's random generator",
            why="random numbers are made beforehand, from a key that is known",
            try_="jax.random.key(0) inside the function",
        )


def to_jax(module: JaxModel) -> Any:
    """The pytree that `module` came from, with the module's weights in it."""
    if not isinstance(module, JaxModel):
        raise FrontendError(
            f"{type(module).__name__} did not come from JAX", try_="a model of from_jax"
        )
    package = jax()
    leaves = [
        package.numpy.asarray(array_of(module.tensor(name))).astype(shape.dtype)
        for name, shape in zip(module.walk.leaves, module.walk.shapes, strict=True)
    ]
    return package.tree_util.tree_unflatten(module.walk.tree, leaves)


def array_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """NumPy has no bfloat16."""
    plain = tensor.detach().cpu()
    found: np.ndarray[Any, Any] = (plain.float() if plain.is_floating_point() else plain).numpy()
    return found
