"""What the int8 numbers of a TFLite file stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import Array
from ...ir.quant import HIGH, LOW, Quant, Recipe
from .file import Stored, TfliteGraph
from .rows import Made


def recipe_of(graph: TfliteGraph, made: Sequence[tuple[str, Made]]) -> Recipe:
    """The scales of the file by the names of values and weights in whet's graph."""
    values: dict[str, Quant] = {}
    weights: dict[str, Array] = {}
    for operation, (name, one) in zip(graph.operations, made, strict=True):
        quant = quant_of(graph.tensors[operation.outputs[0]])
        if quant is not None:
            values.update(dict.fromkeys(one.results, quant))
        weights.update({name + end: scales for end, scales in one.scales.items()})
    for i, tensor in enumerate(graph.inputs):
        quant = held(graph, tensor)
        if quant is not None:
            values[f"input_{i}" if i else "input"] = quant
    return Recipe(values, {name: np.asarray(scales) for name, scales in weights.items()})


def held(graph: TfliteGraph, tensor: int) -> Quant | None:
    """The quantization of a tensor; that of a float input is what it becomes first of all."""
    quant = quant_of(graph.tensors[tensor])
    if quant is not None or tensor not in graph.becomes:
        return quant
    return quant_of(graph.tensors[graph.becomes[tensor]])


def quant_of(stored: Stored) -> Quant | None:
    if stored.kind != "INT8" or len(stored.scales) != 1:
        return None
    return Quant(stored.scales[0], stored.zeros[0])


def covers(wide: Quant, narrow: Quant) -> bool:
    """Whether one quantization saturates nothing of another but what rounds to its ends."""
    room = wide.scale / 2
    above = wide.real(HIGH) + room >= narrow.real(HIGH)
    return above and wide.real(LOW) - room <= narrow.real(LOW)
