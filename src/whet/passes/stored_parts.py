"""Read trained parts of weights as they are stored: their numbers, and where those belong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..ir import Array, Builder, DType, Graph, Link, Node, Part, Relation, Role, Type, Value
from ..ops.linear import Linear

Named = tuple[str, Array]  # the end of a name, and bytes
Layer = Callable[[Builder, Node, Value, Value, Part], None]  # numbers, places, part
Whole = Callable[[Builder, Value, Value, Value, Part], Value]  # leaf, numbers, places, part


def read_stored(
    graph: Graph,
    by_leaf: Mapping[str, tuple[str, Part]],
    places: Callable[[Part], Named],
    layer: Layer,
    whole: Whole,
) -> Graph:
    """Linear layers read a part as `layer` emits it; for others, `whole` makes the weight.

    `by_leaf` has the name of the trained leaf, and the part, for each parameter.
    """
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    made: dict[str, tuple[Value, Value]] = {}

    def stored(leaf: Value) -> tuple[Value, Value, Part]:
        name, part = by_leaf[leaf.name]
        if leaf.name not in made:
            end, array = places(part)
            values = part_leaf(b, graph, leaf, name, part)
            made[leaf.name] = values, b.const(array, f"{leaf.name}.{end}", DType.U8)
        return *made[leaf.name], part

    for node in graph.nodes:
        b.loc = node.loc
        leaves = [v for v in node.ins if v.role is Role.PARAM and v.name in by_leaf]
        if not leaves:
            b.nodes.append(node)
        elif as_weight(node, leaves[0]):
            layer(b, node, *stored(leaves[0]))
            b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)
        else:
            now = {leaf: whole(b, leaf, *stored(leaf)) for leaf in leaves}
            b.nodes.append(replace(node, ins=tuple(now.get(v, v) for v in node.ins)))
    return b.finish(graph.outputs)


def part_leaf(b: Builder, graph: Graph, leaf: Value, name: str, part: Part) -> Value:
    """The leaf that trains in place of another."""
    numbers = part.take(graph.data[leaf.name])
    kind, link = Type(leaf.type.dtype, numbers.shape), Link(Relation.PART, leaf.name)
    return b.leaf(name, kind, Role.PARAM, numbers, link)


def as_weight(node: Node, value: Value) -> bool:
    """Whether a linear layer reads the value as its weight."""
    return node.op is Linear and node.ins[1] is value and node.ins.count(value) == 1
