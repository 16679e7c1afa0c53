"""Train the values that the elements of a weight share: those and the indices are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import SchemeError
from ..ir import Array, Builder, Codebook, DType, Graph, Link, Part, Relation, Role, Type, Value
from ..ops.lookup import MOST_BITS, LinearShared, Lookup
from .split_live import as_weight

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
    by_leaf = {p.parameter: (name, p) for name, p in parts.items() if isinstance(p, Codebook)}
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    made: dict[str, tuple[Value, Value]] = {}

    def stored(leaf: Value) -> tuple[Value, Value]:
        """The values, and the indices of all elements."""
        if leaf.name not in made:
            name, part = by_leaf[leaf.name]
            numbers = part.take(graph.data[leaf.name])
            kind, link = Type(leaf.type.dtype, numbers.shape), Link(Relation.PART, leaf.name)
            values = b.leaf(name, kind, Role.PARAM, numbers, link)
            made[leaf.name] = values, b.const(part.index, f"{leaf.name}.index", DType.U8)
        return made[leaf.name]

    for node in graph.nodes:
        b.loc = node.loc
        leaves = [v for v in node.ins if v.role is Role.PARAM and v.name in by_leaf]
        own = {v: by_leaf[v.name][1] for v in leaves}
        attrs: dict[Value, dict[str, Any]] = {
            v: {"bits": part.bits, "fixed": part.zero} for v, part in own.items()
        }
        if not leaves:
            b.nodes.append(node)
        elif as_weight(node, leaves[0]):
            x, w, *bias = node.ins
            b.emit(LinearShared, x, *stored(w), *bias, outputs=w.shape[0], **attrs[w])
            b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)
        else:
            now = {
                v: b.emit(Lookup, *stored(v), name=f"{v.name}.whole", shape=v.shape, **attrs[v])
                for v in leaves
            }
            b.nodes.append(replace(node, ins=tuple(now.get(v, v) for v in node.ins)))
    return b.finish(graph.outputs)
