"""Shared by passes that recognise one operation in the several that a model writes it as."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import Array, Graph, Node, Op, Role, Value
from .rewriting import Uses


class Spelling:
    """What the values of a graph are made of."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = Uses(graph)

    def made(self, value: Value, *ops: type[Op]) -> Node | None:
        """The node that makes the value, if it has one of these operators."""
        node = self.uses.producer.get(value)
        return node if node is not None and node.op in ops else None

    def inner(self, value: Value, *ops: type[Op]) -> Node | None:
        """The same, if only one node reads the value, so that nothing else needs it."""
        return self.made(value, *ops) if self.uses.only_reader(value) is not None else None

    def array(self, value: Value) -> Array | None:
        """The numbers of a constant."""
        return self.graph.data[value.name] if value.role is Role.CONST else None

    def number(self, value: Value) -> float | None:
        """The number that a constant of one element holds."""
        array = self.array(value)
        return float(array.reshape(())) if array is not None and array.size == 1 else None


def sides(node: Node) -> Iterator[tuple[Value, Value]]:
    """The two operands in both orders."""
    a, b = node.ins
    yield a, b
    yield b, a
