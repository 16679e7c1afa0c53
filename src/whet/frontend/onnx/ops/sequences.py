"""Sequences, which are lists, and optional values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....ir import Array
from ..rows import Call, Value, ints, row, tensor


@row("SequenceConstruct", either=(-1,))
def sequence_construct(c: Call, *values: Value) -> list[Value]:
    return [*values]


@row("SequenceAt", known=(1,), either=(0,))
def sequence_at(c: Call, values: list[Value], at: Array) -> Value:
    return values[int(at)]


@row("SequenceInsert", known=(2,), either=(0, 1))
def sequence_insert(c: Call, values: list[Value], value: Value, at: Any = None) -> list[Value]:
    found = list(values)
    found.insert(len(found) if at is None else int(at), value)
    return found


@row("SequenceErase", known=(1,), either=(0,))
def sequence_erase(c: Call, values: list[Value], at: Any = None) -> list[Value]:
    found = list(values)
    del found[-1 if at is None else int(at)]
    return found


@row("SequenceLength", either=(0,), from_known=True)
def sequence_length(c: Call, values: list[Value]) -> Array:
    return np.array(len(values), dtype=np.int64)


@row("SplitToSequence", known=(1,))
def split_to_sequence(c: Call, x: Tensor, sizes: Array | None = None) -> list[Tensor]:
    axis = c.attr("axis", 0)
    each = 1 if sizes is None else sizes
    if np.ndim(each) == 0:
        parts = list(torch.split(x, int(each), dim=axis))
    else:
        parts = list(torch.split(x, ints(each), dim=axis))
    squeezed = sizes is None and not c.flag("keepdims", 1)
    return [part.squeeze(axis) for part in parts] if squeezed else parts


@row("ConcatFromSequence", either=(0,))
def concat_from_sequence(c: Call, values: list[Value]) -> Tensor:
    parts = [tensor(value) for value in values]
    join = torch.stack if c.flag("new_axis") else torch.cat
    return join(parts, dim=c.attr("axis"))


@row("Optional", "OptionalGetElement", either=(0,), from_known=True)
def optional(c: Call, value: Value = None) -> Value:
    if value is None:
        c.refuse("the value is empty")
    return value


@row("OptionalHasElement", either=(0,), from_known=True)
def optional_has_element(c: Call, value: Value = None) -> Array:
    return np.array(value is not None)
