"""Shared by passes: what a value was before its elements were moved or repeated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir import Array, Builder, Node, Value
from ..ops.reduce import Expand
from ..ops.shape import Reshape, Transpose

MOST = 1 << 25  # elements of a value whose moves are followed


class Makers:
    """The node that made each value, while a graph is rewritten."""

    def __init__(self) -> None:
        self.of: dict[Value, Node] = {}
        self._seen = 0

    def see(self, b: Builder) -> None:
        """Take note of the nodes made since the last call."""
        for node in b.nodes[self._seen :]:
            self.of |= dict.fromkeys(node.outs, node)
        self._seen = len(b.nodes)

    def sources(self, value: Value) -> Iterator[tuple[Value, Array]]:
        """Values that this one consists of elements of, the earliest first, itself last.

        With each comes an array of the value's shape: the places of its elements in the source.
        """
        if value.type.elements > MOST:
            return
        moves: list[Node] = []
        source = value
        while (maker := self.of.get(source)) is not None and is_move(maker):
            moves.append(maker)
            source = maker.ins[0]
        while moves:
            yield moves[-1].ins[0], places(moves)
            moves.pop()
        yield value, np.arange(value.type.elements).reshape(value.shape)


def is_move(node: Node) -> bool:
    return node.op in (Reshape, Transpose) or (node.op is Expand and node.attrs.scale == 1)


def places(moves: list[Node]) -> Array:
    """Of a source's elements after these moves, the last of which is the first to happen."""
    source = moves[-1].ins[0]
    found = np.arange(source.type.elements).reshape(source.shape)
    for node in reversed(moves):
        found = node.op.ref(node.attrs, found)  # type: ignore[assignment]
    return found


def in_order(found: Array) -> bool:
    """Whether the elements are all of the source's, as they lie there."""
    return bool((np.ravel(found) == np.arange(found.size)).all())
