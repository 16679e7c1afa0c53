"""Take rows before a linear layer, so that the others are never multiplied."""

from __future__ import annotations

from dataclasses import asdict

from ..ir import Builder, Graph, Node, Value
from ..ops.linear import Linear
from ..ops.shape import Reshape, Slice, Take
from .rewriting import Uses, rewrite


def slice_first(graph: Graph) -> Graph:
    """slice(linear(x, w)) becomes linear(slice(x), w), if it is rows of the result that are taken.

    A language model drops the scores of the last word, which has no next one. That is done where
    the rows taken of x are no larger than the whole result, which nothing else may read.
    """
    uses = Uses(graph)
    layers = {v: layer for v in uses.readers if (layer := layer_of(v, uses)) is not None}
    moved: list[Node] = []

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        layer = layers.get(node.ins[0]) if node.op in (Slice, Take) else None
        if layer is None or not pays(node, layer):
            return None
        (x, *weights), shape = layer.ins, (*node.ins[0].shape[:-1], layer.ins[0].shape[-1])
        if x.shape != shape:
            x = b.emit(Reshape, x, name=f"{x.name}.view", shape=shape)
        x = b.emit(node.op, x, *node.ins[1:], name=f"{x.name}.rows", **asdict(node.attrs))
        moved.append(node)
        b.loc = layer.loc
        return (b.emit(Linear, x, *weights),)

    after = rewrite(graph, rule)
    return slice_first(after) if moved else graph  # of a slice as well


def layer_of(value: Value, uses: Uses) -> Node | None:
    """The linear layer that makes a value for one reader, or what it is a view of."""
    node = uses.producer.get(value)
    if node is None or uses.only_reader(value) is None:
        return None
    if node.op.view:
        return layer_of(node.ins[0], uses)
    return node if node.op is Linear else None


def pays(node: Node, layer: Node) -> bool:
    scores, x = node.ins[0], layer.ins[0]
    of_rows = node.attrs.axis < scores.type.rank - 1 and scores.shape[-1] == layer.out.shape[-1]
    taken = node.out.type.elements // node.out.shape[-1] * x.shape[-1]
    return of_rows and taken <= layer.out.type.elements
