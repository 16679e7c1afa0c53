"""Shared by passes: a rewrite of nodes, and the readers of each value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir import Builder, Graph, Link, Node, Relation, Role, Value

Rewrite = Callable[[Builder, Node], tuple[Value, ...] | None]


def rewrite(graph: Graph, rule: Rewrite) -> Graph:
    """`rule(b, node)` returns values to replace the node's results, or None to keep it.

    The node already reads replaced values. Names and order of unchanged nodes are kept, and the
    last node that the rule emits takes over the values of the node it replaces.
    """
    b = Builder.extend(graph, graph.name)
    b.nodes, b.state = [], []
    now: dict[Value, Value] = {}
    for old in graph.nodes:
        node = replace(old, ins=tuple(now.get(v, v) for v in old.ins))
        b.loc, b.link, before = node.loc, node.out.link, len(b.nodes)
        results = rule(b, node)
        if results is None:
            b.nodes.append(node)
        elif len(b.nodes) > before and b.nodes[-1].outs == results:
            b.nodes[-1] = replace(b.nodes[-1], outs=old.outs)
        else:
            now.update(zip(old.outs, results, strict=True))
    b.state = [(leaf, now.get(nxt, nxt)) for leaf, nxt in graph.state]
    return b.finish(now.get(v, v) for v in graph.outputs)


def made_from(leaf: Value) -> Link | None:
    """The link of a constant that is made from the numbers of this leaf."""
    if leaf.role is Role.PARAM:
        return Link(Relation.MADE_FROM, leaf.name)
    return leaf.link if leaf.is_a(Relation.MADE_FROM) else None


class Uses:
    """The producer and the readers of each value of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.producer: dict[Value, Node] = {}
        self.readers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in node.outs:
                self.producer[value] = node
            for value in node.ins:
                self.readers.setdefault(value, []).append(node)
        self.kept = {*graph.outputs, *(nxt for _, nxt in graph.state)}

    def root(self, value: Value) -> Value:
        """The value that owns the storage: views are followed back."""
        maker = self.producer.get(value)
        return self.root(maker.ins[0]) if maker is not None and maker.op.view else value

    def only_reader(self, value: Value) -> Node | None:
        """The only node that reads the value, if nothing else needs it."""
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.kept else None
