"""What a Keras model takes: names, types and sizes, and how many ids there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...errors import FrontendError
from ..torch.interpreted import Input
from .backend import keras


def inputs_of(model: Any) -> tuple[Any, tuple[Input, ...]]:
    """The structure of what a model takes, and each tensor in it."""
    structure = symbolic_inputs(model)
    if structure is None:  # a subclass that nobody called on symbolic inputs
        shape = (model.get_build_config() or {}).get("input_shape")
        if not shape or not all(size is None or isinstance(size, int) for size in shape):
            raise FrontendError(
                "the Keras model does not say which inputs it takes",
                try_="a functional model: keras.Model(inputs, model(inputs))",
            )
        return 0, (Input("input", torch.float32, (None, *shape[1:])),)  # a batch of any size
    if isinstance(structure, list) and len(structure) == 1:
        structure = structure[0]
    return structure, tuple(input_of(t, model) for t in keras().tree.flatten(structure))


def symbolic_inputs(model: Any) -> Any:
    """Keras' tensors for the inputs; a sequential model has `inputs` but no `input`."""
    for name in ("input", "inputs"):
        try:
            found = getattr(model, name)
        except (AttributeError, ValueError):
            continue
        if found is not None:
            return found
    return None


def input_of(tensor: Any, model: Any) -> Input:
    kind = getattr(torch, tensor.dtype, None)
    if not isinstance(kind, torch.dtype):
        raise FrontendError(
            f"input {tensor.name!r} of the Keras model is of type {tensor.dtype}",
            why="whet computes with numbers",
        )
    count = min(counts_of_ids(tensor, model), default=None)
    if count is not None and kind.is_floating_point:
        kind = torch.int32  # Embedding makes these of what it gets
    return Input(tensor.name, kind, tuple(tensor.shape), count)


def counts_of_ids(tensor: Any, model: Any) -> Iterator[int]:
    """The sizes of the embeddings that read an input, also where a model inside reads it."""
    embedding = keras().layers.Embedding
    for operation, position in readers(tensor, model):
        if isinstance(operation, embedding):
            yield operation.input_dim
        elif isinstance(operation, keras().Model):
            inner = getattr(operation, "inputs", None) or ()
            if position < len(inner):
                yield from counts_of_ids(inner[position], operation)


def readers(tensor: Any, model: Any) -> Iterator[tuple[Any, int]]:
    """The operations that take a tensor, and which of their inputs it is."""
    graph = getattr(model, "_functional", None) or model
    for operation in getattr(graph, "operations", ()):
        for node in operation._inbound_nodes:
            for position, taken in enumerate(node.input_tensors):
                if taken is tensor:
                    yield operation, position
