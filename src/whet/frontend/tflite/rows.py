"""The table of operators: each row makes one operator of TFLite from layers of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from ...errors import UnsupportedOps
from ...ir import Array
from .file import TYPES, Operation, Stored, TfliteGraph, schema

NONE, RELU, RELU6 = 0, 1, 3  # activations


@dataclass(frozen=True, eq=False)
class Given:
    """An operation in its graph, and the name of its layer."""

    operation: Operation
    graph: TfliteGraph
    name: str

    @property
    def result(self) -> Stored:
        return self.graph.tensors[self.operation.outputs[0]]

    def operand(self, i: int) -> Stored | None:
        """None where there is no such operand."""
        inputs = self.operation.inputs
        return self.graph.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def needed(self, i: int) -> Stored:
        found = self.operand(i)
        if found is None:
            raise self.refused(f"it has no operand {i}")
        return found

    def computed(self, i: int) -> Stored:
        """An operand that an operation, or whoever calls the network, gives."""
        found = self.needed(i)
        if found.data is not None:
            raise self.refused(f"operand {i} is a constant")
        return found

    def constant(self, i: int, *kinds: str) -> Stored:
        """An operand that is stored, as one of these types."""
        found = self.needed(i)
        if found.data is None:
            raise self.refused(f"operand {i} is no constant")
        if found.kind not in (kinds or TYPES):
            raise self.refused(f"operand {i} is of type {found.kind}")
        return found

    def integers(self, i: int) -> Array:
        found = self.constant(i, "INT32", "INT64").data
        return np.asarray(found, np.int64)

    def options(self, name: str) -> Any:
        found = schema(name)()
        if self.operation.options is None:
            raise self.refused("it has no options")
        if self.operation.options_type != name:
            raise self.refused(f"its options are {self.operation.options_type}, not {name}")
        found.Init(self.operation.options.Bytes, self.operation.options.Pos)
        return found

    def refused(self, what: str, why: str = "", try_: str = "") -> UnsupportedOps:
        words = f"{self.operation.code} of TFLite: {what}"
        return UnsupportedOps(words, at=self.result.name, why=why, try_=try_)


@dataclass(frozen=True, eq=False)
class Made:
    """What an operation becomes: modules by the end of their name, and what is done with them.

    A copy of the network has modules of its own, so `call` gets them.

    `scales` are those of weights, by the end of their name; `results` name values of whet's graph
    that have the result's scale. `call` gets the operands that are not constants.
    """

    modules: Mapping[str, nn.Module]
    call: Callable[..., Tensor]
    scales: Mapping[str, Array]
    results: tuple[str, ...]


ROWS: dict[str, Callable[[Given], Made]] = {}


def row(*codes: str) -> Callable[[Callable[[Given], Made]], Callable[[Given], Made]]:
    def register(make: Callable[[Given], Made]) -> Callable[[Given], Made]:
        for code in codes:
            ROWS[code] = make
        return make

    return register


def activation(given: Given, number: int) -> nn.Module | None:
    kinds = {NONE: None, RELU: nn.ReLU(), RELU6: nn.ReLU6()}
    if number not in kinds:
        raise given.refused(f"activation {number}")
    return kinds[number]


def fused(
    given: Given, layer: nn.Module, act: nn.Module | None, around: Callable[..., Tensor],
    scales: Mapping[str, Array],
) -> Made:  # fmt: skip
    """A layer with the activation behind it, whose result has the scale."""
    modules = {"": layer} | ({"_act": act} if act is not None else {})

    def call(own: Sequence[nn.Module], x: Tensor) -> Tensor:
        return around(x, lambda y: through(own, y))

    return Made(modules, call, scales, (given.name + ("_act" if act is not None else ""),))


def through(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


class Plain(nn.Module):
    def __init__(self, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x)


def plain(given: Given, word: str, compute: Callable[[Tensor], Tensor]) -> Made:
    return Made({"": Plain(compute)}, lambda own, x: own[0](x), {}, (f"{given.name}.{word}",))


def check_known(operations: tuple[Operation, ...]) -> None:
    """Say all operators at once that have no row."""
    missing = sorted({o.code for o in operations} - set(ROWS))
    if missing:
        raise UnsupportedOps(
            f"whet does not know {len(missing)} operators of this TFLite file: "
            + ", ".join(missing),
            try_="docs/tflite.md lists the operators",
        )
