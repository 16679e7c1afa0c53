"""The table of operators: each row computes one operator of ONNX with calls of PyTorch.

A value is a NumPy array where it is known before the program runs, and a tensor otherwise. A row
gets tensors, except at the positions that it declares: at `known` ones it gets arrays, and a value
that is not known there is an error; at `either` ones it gets the value as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ...errors import FrontendError, UnsupportedOps
from ...ir import Array
from .graph import Node

ML = "ai.onnx.ml"
Value = Any  # Array | Tensor | list[Value] | None


@dataclass(frozen=True)
class Row:
    compute: Callable[..., Any]
    known: Collection[int]
    either: Collection[int]
    from_known: bool  # also for known operands, which onnx's reference computes otherwise


ROWS: dict[tuple[str, str], Row] = {}


def row(
    *names: str,
    domain: str = "",
    known: Collection[int] = (),
    either: Collection[int] = (),
    from_known: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            ROWS[domain, name] = Row(compute, known, either, from_known)
        return compute

    return register


class Call:
    """One node that is computed, with its attributes."""

    def __init__(self, node: Node, run: Any) -> None:
        self.node, self.run = node, run
        self.version = node.version

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def flag(self, name: str, default: int = 0) -> bool:
        return bool(self.node.attributes.get(name, default))

    def wants(self, i: int) -> bool:
        """Whether the i-th output is used."""
        return i < len(self.node.outputs) and self.node.outputs[i] != ""

    @property
    def training(self) -> bool:
        return bool(self.run.module.training)

    def refuse(self, what: str, try_: str = "") -> NoReturn:
        raise UnsupportedOps(f"{self.node.op} of ONNX: {what}", at=self.node.place, try_=try_)


def is_known(value: Value) -> bool:
    if isinstance(value, list):
        return all(map(is_known, value))
    return not isinstance(value, Tensor)


def tensor(value: Value) -> Any:
    """The value at run time."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    if value.dtype.kind not in "fiub":
        raise FrontendError(f"numbers of type {value.dtype} cannot be computed with")
    return torch.from_numpy(np.array(value, order="C"))


def ints(value: Array | Sequence[int] | int) -> list[int]:
    return [int(n) for n in np.asarray(value).reshape(-1)]


def operands(row: Row, call: Call, values: Sequence[Value]) -> list[Value]:
    """The values as the row wants them; constants are doubles where the model was made double."""
    found = []
    for i, value in enumerate(values):
        if value is None or i in row.either or -1 in row.either:
            found.append(value)
        elif i in row.known:
            found.append(value)
        else:
            made = tensor(value)
            widened = call.run.double and is_known(value) and made.dtype == torch.float32
            found.append(made.double() if widened else made)
    return found


def check_known(row: Row, node: Node, values: Sequence[Value]) -> None:
    for i, value in enumerate(values):
        if i in row.known and not is_known(value):
            raise NotKnown(node, i)


class NotKnown(UnsupportedOps):
    """An operand that decides shapes, and depends on numbers that only the program will see."""

    def __init__(self, node: Node, position: int) -> None:
        super().__init__(
            f"operand {position} of {node.op} must be known when the model is compiled",
            at=node.place,
            why="it depends on the values of an input or of a parameter",
            try_="export the model with fixed shapes",
        )
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:
        return UnsupportedOps, (self.what,)


# The types of ONNX, by number.
TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 4: torch.uint16, 5: torch.int16,
    6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64,
    12: torch.uint32, 13: torch.uint64, 16: torch.bfloat16,
}  # fmt: skip


def type_of(call: Call, number: int) -> torch.dtype:
    if number not in TYPES:
        call.refuse(f"type {number} of numbers")
    kind = TYPES[number]
    return torch.float64 if kind == torch.float32 and call.run.double else kind
