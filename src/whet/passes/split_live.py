"""Train the live elements of a pruned weight: only those are stored, the others are zeros."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace

from ..errors import SchemeError
from ..ir import (
    Array,
    Builder,
    DType,
    Graph,
    Live,
    Node,
    Part,
    Relation,
    Role,
    Value,
)
from ..ops.largest import Spread
from ..ops.live import LinearLive
from ..ops.shape import Reshape
from .stored_parts import Named, as_weight, read_stored


def find_live(graph: Graph, live: Mapping[str, Array], wanted: Collection[str]) -> dict[str, Live]:
    """The live elements of the `wanted` parameters, by the name of the trained part.

    Integers are stored whole, with their zeros, and so is what has no zeros at all.
    """
    parts = {}
    for leaf in graph.leaves_of(Role.PARAM):
        if leaf.name not in wanted:
            continue
        flags = live.get(leaf.name)
        if flags is None:
            raise SchemeError(
                f"{leaf.name} cannot train sparsely",
                why="none of its elements is zero",
                try_="prune it first, or train it whole",
            )
        if not flags.any():
            raise SchemeError(
                f"{leaf.name} cannot train sparsely",
                why="all of its elements are zero, and those stay zero",
                try_="a scheme without it",
            )
        part = Live.of(leaf.name, flags)
        if leaf.type.dtype is not DType.F32:
            part = replace(part, whole=True)
        parts[leaf.name if part.whole else f"{leaf.name}.part"] = part
    return parts


def stored_whole(parts: Mapping[str, Part], graph: Graph) -> dict[str, Part]:
    """The parts, but those that not only linear layers read are stored whole."""
    spread = {v.name for node in graph.nodes for v in node.ins if not as_weight(node, v)}
    found = {}
    for name, part in parts.items():
        if isinstance(part, Live) and part.parameter in spread:
            name, part = part.parameter, replace(part, whole=True)
        found[name] = part
    return found


def split_live(graph: Graph, parts: Mapping[str, Part]) -> Graph:
    """linear(x, w) becomes linear_live(x, w.part, bits); others read spread(w.part, bits)."""
    by_leaf: dict[str, tuple[str, Part]] = {
        part.parameter: (name, part)
        for name, part in parts.items()
        if isinstance(part, Live) and not part.whole
    }

    def places(part: Part) -> Named:
        assert isinstance(part, Live)
        return "live", part.bits

    def layer(b: Builder, node: Node, values: Value, bits: Value, part: Part) -> None:
        x, w, *bias = node.ins
        b.emit(LinearLive, x, values, bits, *bias, outputs=w.shape[0])

    def whole(b: Builder, leaf: Value, values: Value, bits: Value, part: Part) -> Value:
        row = b.emit(Reshape, values, shape=(1, values.type.elements))
        flat = b.emit(Spread, row, bits, name=f"{leaf.name}.whole", shape=(1, leaf.type.elements))
        return b.emit(Reshape, flat, name=f"{leaf.name}.whole", shape=leaf.shape)

    return read_stored(graph, by_leaf, places, layer, whole)


def spread_late(graph: Graph) -> Graph:
    """Every reader of a weight that is made of a part makes it itself, right before.

    The whole weight is in the arena only while it is read.
    """
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    makers: dict[Value, Node] = {}

    def again(value: Value) -> Value:
        """The weight, made once more."""
        maker = makers[value]
        if maker.op.expands:
            return b.emit(maker.op, *maker.ins, name=value.name, **asdict(maker.attrs))
        return b.emit(Reshape, again(maker.ins[0]), name=value.name, shape=value.shape)

    for node in graph.nodes:
        part = node.op.expands and root(makers, node.ins[0]).is_a(Relation.PART)
        if part or (node.op is Reshape and is_spread(makers, node.ins[0])):
            makers[node.out] = node
            continue
        if node.op is Reshape and node.ins[0].is_a(Relation.PART):
            makers[node.out] = node
        b.loc = node.loc
        now = {v: again(v) for v in node.ins if is_spread(makers, v)}
        b.nodes.append(replace(node, ins=tuple(now.get(v, v) for v in node.ins)))
    return b.finish(graph.outputs)


def root(makers: Mapping[Value, Node], value: Value) -> Value:
    return root(makers, makers[value].ins[0]) if value in makers else value


def is_spread(makers: Mapping[Value, Node], value: Value) -> bool:
    """Whether it is such a weight or a view of one."""
    maker = makers.get(value)
    return maker is not None and (maker.op.expands or is_spread(makers, maker.ins[0]))
