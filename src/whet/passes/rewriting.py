"""What passes share: a walk over the nodes that replaces some, and who reads what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir import Builder, Graph, Node, Value

Rule = Callable[[Builder, Node], tuple[Value, ...] | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """`rule(b, node)` gives values to use in place of the node's results, or None to keep it.

    The node it is shown already reads replaced values. Names and order of what stays are kept, and
    a node that the rule emits last takes over the values of the node it replaces.
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


class Uses:
    """Who makes and who reads each value of a graph."""

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
        """The value whose bytes these are: views are followed back."""
        maker = self.producer.get(value)
        return self.root(maker.ins[0]) if maker is not None and maker.op.view else value

    def only_reader(self, value: Value) -> Node | None:
        """The one node that reads the value, if nothing else needs it."""
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.kept else None
