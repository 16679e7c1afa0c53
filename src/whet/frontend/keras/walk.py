"""Compute the outputs of a Keras model from tensors that are not its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..torch.interpreted import Interpreted, owner_of
from .backend import keras


class KerasWalk:
    """A Keras model that `Interpreted` runs; its own variables are neither read nor written."""

    def __init__(self, model: Any, structure: Any) -> None:
        self.model, self.structure = model, structure  # of what the model takes

    def __deepcopy__(self, memo: dict[int, Any]) -> KerasWalk:
        return self

    def __call__(self, module: Interpreted, inputs: Sequence[Tensor]) -> Any:
        model, tree = self.model, keras().tree
        taken = tree.pack_sequence_as(self.structure, list(inputs))
        kept = [name_of(v) for v in model.non_trainable_variables]
        trained = [module.tensor(name_of(v)) for v in model.trainable_variables]
        others = [module.tensor(name) for name in kept]
        with in_floats(model, [*trained, *others]):
            found, changed = model.stateless_call(trained, others, taken, training=module.training)
        if module.training:
            for name, old, new in zip(kept, others, changed, strict=True):
                if new is not old:
                    owner, leaf = owner_of(module, module.paths[name])
                    setattr(owner, leaf, new)
        outputs = tree.flatten(found)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def name_of(variable: Any) -> str:
    """The path, and a number behind it for variables that share one."""
    return f"{variable.path}"


@contextmanager
def in_floats(model: Any, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Let layers compute in float64 where the tensors are, so that `check` has a truth."""
    if not any(t.dtype == torch.float64 for t in tensors):
        yield
        return
    layers = [layer for layer in model._flatten_layers() if layer.dtype_policy.name == "float32"]
    variables = [v for v in model.variables if v.dtype == "float32"]
    single, double = (keras().DTypePolicy(name) for name in ("float32", "float64"))
    try:
        for layer in layers:
            layer.dtype_policy = double
        for variable in variables:
            variable._dtype = "float64"
        yield
    finally:
        for layer in layers:
            layer.dtype_policy = single
        for variable in variables:
            variable._dtype = "float32"
