"""Which model a checkpoint belongs to: what it computes, and every number that does not train.

The batch size, the loss and the compile options are not part of it, so a checkpoint remains valid
when they change.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from ..ir import Array, Attributes, Graph, Op, Part, Role, Value, is_meta
from ..ops.reduce import Expand
from ..ops.shape import Reshape, Transpose
from .model import Model

# Data movement depends on the batch size: an axis of size 1 may be anywhere, and is not expanded.
MOVES: tuple[type[Op], ...] = (Reshape, Transpose, Expand)
BATCH_ATTRIBUTES = frozenset({"shape", "axis", "axes"})  # attributes that depend on it, too


def identity(model: Model, chosen: Collection[str], parts: Mapping[str, Part]) -> int:
    """A checksum of the model. `chosen` are the trained parameters; of some, only `parts` train."""
    graph = model.training.graph
    params, units = graph.leaves_of(Role.PARAM), model.rules.integer_rules.units
    words = [f"{leaf} : {leaf.type}" for leaf in params]
    words += operations(model.prediction.graph)
    words += [f"{name} in {unit.unit!r} of {unit.scale}" for name, unit in units.items()]
    crc = zlib.crc32("\n".join(words).encode())
    places = {part.parameter: part for part in parts.values()}
    for leaf in params:
        if leaf.name in chosen and leaf.name not in places:
            continue
        if is_meta(graph.data[leaf.name]):
            continue
        data = graph.data[leaf.name].astype(leaf.type.dtype.numpy, copy=False)
        if leaf.name in places:
            data = places[leaf.name].fixed(data)
        crc = zlib.crc32(np.ascontiguousarray(data).data, crc)
    return crc


def operations(graph: Graph) -> Iterator[str]:
    """Each operation and its operands: values by the number of their operation, constants by
    content."""
    known: dict[Value, str] = {}
    for leaf in graph.leaves:
        known[leaf] = str(leaf)
        if leaf.role is Role.CONST and not is_meta(graph.data[leaf.name]):
            known[leaf] = f"{zlib.crc32(without_repeats(graph.data[leaf.name]).tobytes()):08x}"
    count = 0
    for node in graph.nodes:
        if node.op in MOVES:
            known[node.out] = known[node.ins[0]]
            continue
        yield f"{node.op.name} {settings(node.attrs)} {' '.join(known[v] for v in node.ins)}"
        known |= {v: f"{count}.{i}" for i, v in enumerate(node.outs)}
        count += 1


def settings(attrs: Attributes) -> str:
    pairs = dataclasses.asdict(attrs).items()
    return " ".join(f"{name}={value!r}" for name, value in pairs if name not in BATCH_ATTRIBUTES)


def without_repeats(data: Array) -> Array:
    """The array reduced along constant axes: a constant may be repeated for every sample."""
    for axis in range(data.ndim):
        first = data.take([0], axis)
        if (data == first).all():
            data = first
    return data
