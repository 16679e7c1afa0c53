"""A TFLite file becomes a PyTorch module, with the scales of its integers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import FrontendError, UnsupportedOps
from ..torch.interpreted import Input, Interpreted
from . import ops as _register_rows  # noqa: F401
from .constants import check_copies
from .file import DAMAGED, Stored, TfliteGraph, not_tflite, read
from .rows import ROWS, Given, Made, check_known
from .scales import recipe_of

KINDS = {"INT8": torch.float32, "FLOAT32": torch.float32}


class TfliteWalk:
    """The operations of a file, one after the other, with the layers of the module.

    A batch may be larger or smaller than in the file. The first size of every value then is so in
    the same ratio: what does not keep to that mixes samples, and is an error.
    """

    def __init__(self, graph: TfliteGraph, made: Sequence[tuple[str, Made]]) -> None:
        self.graph, self.made = graph, tuple(made)

    def __deepcopy__(self, memo: dict[int, Any]) -> TfliteWalk:
        return self

    def __call__(self, module: Interpreted, inputs: Sequence[Tensor]) -> Any:
        env = dict(zip(self.graph.inputs, inputs, strict=True))
        batch = self.batch_of(inputs)
        for operation, (name, made) in zip(self.graph.operations, self.made, strict=True):
            own = [getattr(module, name + end) for end in made.modules]
            operands = [env[i] for i in operation.inputs if i in env]
            output = operation.outputs[0]
            env[output] = self.result(operation.code, output, batch, made, own, operands)
        found = tuple(env[i] for i in self.graph.outputs)
        return found[0] if len(found) == 1 else found

    def batch_of(self, inputs: Sequence[Tensor]) -> Fraction:
        """How many times that of the file the batch is."""
        first = self.graph.tensors[self.graph.inputs[0]].shape
        given = inputs[0].shape
        batch = Fraction(given[0], first[0]) if first and len(given) else Fraction(1)
        for i, x in zip(self.graph.inputs, inputs, strict=True):
            stored = self.graph.tensors[i]
            if tuple(x.shape) != times(stored.shape, batch):
                raise FrontendError(
                    f"input {stored.name!r} has shape {tuple(x.shape)}, in the TFLite file "
                    f"{stored.shape}",
                    try_="inputs of these sizes; only the first, the batch, may be another",
                )
        return batch

    def result(
        self, code: str, output: int, batch: Fraction, made: Made, own: Sequence[torch.nn.Module],
        operands: Sequence[Tensor],
    ) -> Tensor:  # fmt: skip
        """Of one operation, if it has the size that the file says."""
        stored = self.graph.tensors[output]
        wanted = times(stored.shape, batch)
        try:
            value = made.call(own, *operands)
        except RuntimeError as error:
            if batch == 1:
                raise
            raise mixes(code, stored, batch, str(error).split("\n")[0][:200]) from error
        found = tuple(value.shape)
        if found == wanted:
            return value
        if batch != 1:
            raise mixes(code, stored, batch, f"its result would have shape {found}")
        raise ValueError(f"{code} gives shape {found} where it says {stored.shape}")


def times(shape: tuple[int, ...], batch: Fraction) -> tuple[int | Fraction, ...]:
    return (shape[0] * batch, *shape[1:]) if shape else ()


def mixes(code: str, stored: Stored, batch: Fraction, why: str) -> FrontendError:
    return FrontendError(
        f"{code} of the TFLite file, which gives {stored.shape}, cannot be computed for a batch "
        f"{batch} times that of the file",
        at=stored.name,
        why=why,
        try_="inputs of the sizes in the file",
    )


def from_tflite(path: str | os.PathLike[str]) -> Interpreted:
    """The float network that a TFLite file of int8 stands for, in eval mode.

    `whet.compile(model, inputs, dtype="int8")` makes the integer program with the scales of the
    file, which are `model.whet_recipe`. Inputs and outputs are the real numbers that the file's
    integers stand for, and images have the channels last, as in the file.
    """
    place = Path(path)
    graph = read(place)
    check_known(graph.operations)
    try:
        return module_of(graph)
    except (FrontendError, UnsupportedOps):
        raise
    except (*DAMAGED, RuntimeError, ZeroDivisionError) as error:
        lines = str(error).splitlines() or [""]
        why = f"its operators do not fit together: {type(error).__name__}: {lines[0]}"
        raise not_tflite(place, why[:300]) from error


def module_of(graph: TfliteGraph) -> Interpreted:
    check_copies(graph)
    made = []
    for i, operation in enumerate(graph.operations):
        if len(operation.outputs) != 1:
            raise ValueError(f"{operation.code} has {len(operation.outputs)} results")
        name = f"{operation.code.lower().removesuffix('_2d')}_{i}"
        given = Given(operation, graph, name)
        made.append((name, ROWS[operation.code](given)))
    inputs = [input_of(graph.tensors[i]) for i in graph.inputs]
    module = Interpreted(TfliteWalk(graph, made), inputs, {}, {})
    for name, one in made:
        for end, layer in one.modules.items():
            module.add_module(name + end, layer)
    check_sizes(module, graph)
    object.__setattr__(module, "whet_recipe", recipe_of(graph, made))
    module.eval()
    return module


def check_sizes(module: Interpreted, graph: TfliteGraph) -> None:
    """The file's own sizes are those that its operators give; no memory is taken for values."""
    stored = dict(module.named_parameters()) | dict(module.named_buffers())
    weights = {name: weight.to("meta") for name, weight in stored.items()}
    inputs = tuple(torch.empty(graph.tensors[i].shape, device="meta") for i in graph.inputs)
    with torch.no_grad():
        torch.func.functional_call(module, weights, inputs)


def input_of(stored: Stored) -> Input:
    if stored.kind not in KINDS:
        raise FrontendError(
            f"input {stored.name!r} of the TFLite file is of type {stored.kind}",
            why="whet reads networks of INT8, with inputs of INT8 or FLOAT32",
        )
    return Input(stored.name, KINDS[stored.kind], (None, *stored.shape[1:]))
