"""Values with fewer places along one axis: what passes share that make a graph for less data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..ir import Node, Type, Value
from ..ops.reduce import Expand
from ..ops.shape import Reshape


@dataclass(frozen=True)
class Along:
    """Where such an axis is in a value: within `axis`, which is outer x places x the rest."""

    axis: int
    outer: int = 1


@dataclass(frozen=True)
class Fewer:
    """How many places there were, and how many there are now: fewer."""

    size: int
    now: int = 1

    def found(
        self, node: Node, old: Value, new: Value, known: Mapping[Value, Along]
    ) -> Along | None:
        """Where they are in a result: in the only axis that has become shorter."""
        pairs = zip(old.shape, new.shape, strict=True)
        axes = [k for k, (before, after) in enumerate(pairs) if before != after]
        if len(axes) != 1:
            return None
        (axis,) = axes
        if old.shape[axis] * self.now != self.size * new.shape[axis]:
            return None
        if node.op is Reshape:
            return self.reshaped(node.ins[0], old.shape, known[node.ins[0]])
        given = [(v, known[v]) for v in node.ins if v in known]
        outer = {where.outer for _, where in given}
        same = all(v.shape[where.axis] == old.shape[axis] for v, where in given)
        if outer <= {1} or (same and len(outer) == 1):
            return Along(axis, *outer)
        return None

    def reshaped(self, value: Value, shape: tuple[int, ...], where: Along) -> Along | None:
        """Where they are in a value after a reshape."""
        outer = prod(value.shape[: where.axis]) * where.outer
        for axis, n in enumerate(shape):
            before = prod(shape[:axis])
            if outer % before == 0 and n % (outer // before * self.size) == 0:
                return Along(axis, outer // before)
        return None

    def attributes(self, node: Node, known: Mapping[Value, Along]) -> Any:
        """The node's attributes: explicit shapes contain the number of places."""
        if node.op not in (Reshape, Expand):
            return node.attrs
        shape, value = list(node.attrs.shape), node.ins[0]
        where, more = known.get(value), len(shape) - value.type.rank
        if where is None:  # a value repeated for every sample
            once = node.op is Expand and shape[0] == self.size and (more or value.shape[0] == 1)
            axis = 0 if once else None
        elif node.op is Expand:
            axis = where.axis + more
        else:
            found = self.reshaped(value, node.attrs.shape, where)
            axis = None if found is None else found.axis
        if axis is None:
            return node.attrs
        shape[axis] = shape[axis] // self.size * self.now
        return replace(node.attrs, shape=tuple(shape))


def resized(kind: Type, axis: int, n: int) -> Type:
    """The type with another size along an axis."""
    return replace(kind, shape=(*kind.shape[:axis], n, *kind.shape[axis + 1 :]))
