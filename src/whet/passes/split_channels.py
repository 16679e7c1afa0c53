"""Train some input channels of a weight: split it into a frozen and a trained part."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict

import numpy as np

from ..errors import SchemeError
from ..ir import Builder, DType, Graph, Layer, Node, Part, Value, WeightSlice
from ..ops.binary import Add
from ..ops.shape import Reshape, Slice, SliceDx, Take, TakeDx
from .rewriting import Uses, rewrite
from .stored_parts import part_leaf


def find_slices(graph: Graph, chosen: Mapping[str, tuple[int, ...]]) -> dict[str, WeightSlice]:
    """Where the chosen input channels of each weight lie in it, by the name of the trained part.

    Refused are weights that anything but one kind of layer reads.
    """
    uses = Uses(graph)
    parts: dict[str, WeightSlice] = {}
    for node in graph.nodes:
        leaf = _weight_of(uses, node, chosen)
        if leaf is None:
            continue
        part = _part_of(leaf, node, chosen[leaf.name])
        if part is None or parts.setdefault(f"{leaf.name}.part", part) != part:
            raise _not_by_channels(leaf.name, node)
    return parts


def split_channels(graph: Graph, parts: Mapping[str, Part]) -> Graph:
    """layer(x, w) becomes layer(x, w') + layer(x[chosen], w.part), w' being w without those.

    Only x[chosen] is needed for the gradient of w.part, so only that is kept, and only w.part
    lives in RAM. In w' its place is taken by zeros, so that w' keeps its shape.
    """
    uses = Uses(graph)
    by_leaf = {
        part.parameter: (name, part)
        for name, part in parts.items()
        if isinstance(part, WeightSlice)
    }
    trained: dict[str, Value] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        leaf = _weight_of(uses, node, by_leaf)
        if leaf is None:
            return None
        name, part = by_leaf[leaf.name]
        if leaf.name not in trained:
            trained[leaf.name] = _split(b, graph, leaf, name, part)
        return (_layer(b, node, trained[leaf.name], part.channels),)

    return rewrite(graph, rule)


def _weight_of(uses: Uses, node: Node, chosen: Collection[str]) -> Value | None:
    """The weight of a layer that is among the chosen ones; nothing else may read those."""
    leaves = [_leaf_of(uses, v) for v in node.ins]
    found = [leaf.name for leaf in leaves if leaf.name in chosen]
    if node.op is Reshape or not found:
        return None
    layer = node.op.layer
    if layer is None or found != [leaves[layer.weight].name]:
        raise _not_by_channels(found[0], node)
    return leaves[layer.weight]


def _leaf_of(uses: Uses, value: Value) -> Value:
    """The leaf that a value is, or is a view of."""
    maker = uses.producer.get(value)
    return _leaf_of(uses, maker.ins[0]) if maker is not None and maker.op is Reshape else value


def _not_by_channels(leaf: str, node: Node) -> SchemeError:
    return SchemeError(
        f"{leaf} cannot train by channels",
        at=str(node.loc),
        why=f"{node.op.name} uses it otherwise than one convolution or linear layer would",
        try_="train it whole",
    )


def _part_of(leaf: Value, node: Node, indices: tuple[int, ...]) -> WeightSlice | None:
    """Where the channels lie in the leaf; None if it is reshaped so that they lie scattered."""
    layer = _facts(node)
    size = node.ins[layer.weight].shape[layer.inputs]
    axis = layer.stored(layer.inputs, leaf.type.rank)
    if leaf.shape[axis] != size:
        return None
    within = indices
    if layer.inputs_of_all_groups:
        within = _in_groups(indices, node.attrs.groups, size // node.attrs.groups)
    return WeightSlice(leaf.name, axis, within, indices)


def _facts(node: Node) -> Layer:
    assert node.op.layer is not None
    return node.op.layer


def _in_groups(indices: tuple[int, ...], groups: int, per_group: int) -> tuple[int, ...]:
    return tuple(g * per_group + i for g in range(groups) for i in indices)


def _split(b: Builder, graph: Graph, leaf: Value, name: str, part: WeightSlice) -> Value:
    """Make the trained leaf, and take its numbers out of the frozen one."""
    data = graph.data[leaf.name]
    b.data[leaf.name] = part.fixed(data)
    return part_leaf(b, graph, leaf, name, part)


def _layer(b: Builder, node: Node, part: Value, indices: tuple[int, ...]) -> Value:
    x, w, *bias = node.ins
    attrs, name = asdict(node.attrs), node.out.name
    groups = attrs.get("groups", 1)
    channels = _in_groups(indices, groups, x.shape[-1] // groups)
    frozen = b.emit(node.op, x, w, *bias, name=f"{name}.frozen", **attrs)
    kept = take_channels(b, x, channels)
    layer, sizes = _facts(node), list(w.shape)
    sizes[layer.inputs] = len(channels if layer.inputs_of_all_groups else indices)
    shape = tuple(sizes)
    weight = part if part.shape == shape else b.emit(Reshape, part, shape=shape)
    moved = b.emit(node.op, kept, weight, name=f"{name}.part", **attrs)
    if layer.depthwise:
        moved = put_channels(b, moved, channels, x.shape[-1])
    return b.emit(Add, frozen, moved, name=name)


def side_by_side(channels: tuple[int, ...]) -> bool:
    return channels[-1] - channels[0] + 1 == len(channels)


def take_channels(b: Builder, x: Value, channels: tuple[int, ...]) -> Value:
    """The chosen channels of x, next to each other."""
    axis, name = x.type.rank - 1, f"{x.name}.part"
    if side_by_side(channels):
        start, stop = channels[0], channels[-1] + 1
        return b.emit(Slice, x, name=name, axis=axis, start=start, stop=stop)
    index = b.const(np.array(channels), name=f"{name}.channels", dtype=DType.I32)
    return b.emit(Take, x, index, name=name, axis=axis)


def put_channels(b: Builder, x: Value, channels: tuple[int, ...], size: int) -> Value:
    """Zeros, with x in the chosen channels."""
    axis, name = x.type.rank - 1, f"{x.name}.put"
    if side_by_side(channels):
        return b.emit(SliceDx, x, name=name, axis=axis, start=channels[0], step=1, size=size)
    index = b.const(np.array(channels), name=f"{name}.channels", dtype=DType.I32)
    return b.emit(TakeDx, x, index, name=name, axis=axis, size=size)
