"""Train the values that the elements of a weight share: those and the indices are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import SchemeError
from ..ir import Array, Builder, Codebook, DType, Graph, Node, Part, Role, Value
from ..ops.lookup import MOST_BITS, LinearShared, Lookup
from .stored_parts import Named, read_stored

MOST = 2**MOST_BITS


def find_shared(
    graph: Graph, wanted: Mapping[str, bool], masks: Mapping[str, Array]
) -> dict[str, Codebook]:
    """The values of the `wanted` parameters, by the name of the trained part.

    Those that are True keep their zeros. What `masks` prune is zero.
    """
    parts = {}
    for leaf in graph.leaves_of(Role.PARAM):
        if leaf.name not in wanted:
            continue
        data = graph.data[leaf.name]
        data = np.where(masks[leaf.name], data, 0) if leaf.name in masks else data
        if leaf.type.dtype is not DType.F32:
            raise SchemeError(
                f"{leaf.name} cannot train by a codebook",
                why="it is made of integers, each with a scale for its channel",
                try_="a float program, or a rule without shared",
            )
        if (count := len(np.unique(data))) > MOST or not np.all(np.isfinite(data)):
            raise SchemeError(
                f"{leaf.name} cannot train by a codebook",
                why=f"it has {count:,} values, a codebook has {MOST} at most",
                try_="share its values first, with whet.compress",
            )
        if wanted[leaf.name] and data.all():
            raise SchemeError(
                f"{leaf.name} cannot train sparsely",
                why="none of its elements is zero",
                try_="a rule with shared alone",
            )
        parts[f"{leaf.name}.part"] = Codebook.of(leaf.name, data, wanted[leaf.name])
    return parts


def split_shared(graph: Graph, parts: Mapping[str, Part]) -> Graph:
    """linear(x, w) becomes linear_shared(x, w.part, index); others read lookup(w.part, index)."""
    by_leaf: dict[str, tuple[str, Part]] = {
        p.parameter: (name, p) for name, p in parts.items() if isinstance(p, Codebook)
    }

    def places(part: Part) -> Named:
        assert isinstance(part, Codebook)
        return "index", part.index

    def layer(b: Builder, node: Node, values: Value, index: Value, part: Part) -> None:
        x, w, *bias = node.ins
        b.emit(LinearShared, x, values, index, *bias, outputs=w.shape[0], **form(part))

    def whole(b: Builder, leaf: Value, values: Value, index: Value, part: Part) -> Value:
        name = f"{leaf.name}.whole"
        return b.emit(Lookup, values, index, name=name, shape=leaf.shape, **form(part))

    return read_stored(graph, by_leaf, places, layer, whole)


def form(part: Part) -> dict[str, Any]:
    """Attributes of the operators that read it."""
    assert isinstance(part, Codebook)
    return {"bits": part.bits, "fixed": part.zero}
