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
        model = self.model
        trained, others, taken = self.arguments(module, inputs)
        with in_floats(model, [*trained, *others]):
            found, changed = model.stateless_call(
                trained, others, taken, **self.mode(module.training)
            )
        if module.training:
            for v, old, new in zip(model.non_trainable_variables, others, changed, strict=True):
                if new is not old:
                    owner, leaf = owner_of(module, module.paths[name_of(v)])
                    setattr(owner, leaf, new)
        outputs = keras().tree.flatten(found)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def mode(self, training: bool) -> dict[str, bool]:
        """The argument of `call`; a subclass may have none, and Keras' `fit` passes none then."""
        return {"training": training} if self.model._call_has_training_arg else {}

    def arguments(self, module: Interpreted, inputs: Sequence[Tensor]) -> tuple[Any, Any, Any]:
        """Values of the trainable and of the other variables, and the inputs as Keras has them."""
        trained = [module.tensor(name_of(v)) for v in self.model.trainable_variables]
        others = [module.tensor(name_of(v)) for v in self.model.non_trainable_variables]
        return trained, others, keras().tree.pack_sequence_as(self.structure, list(inputs))

    def with_losses(
        self, module: Interpreted, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Any]]:
        """The outputs in training mode, and what Keras would add to the loss; nothing changes."""
        trained, others, taken = self.arguments(module, inputs)
        with torch.no_grad():
            found, _, added = self.model.stateless_call(
                trained, others, taken, return_losses=True, **self.mode(True)
            )
        return keras().tree.flatten(found), list(added)


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
