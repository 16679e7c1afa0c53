"""Put the addition and the clamp that follow a layer into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..ir import Builder, Graph, Node, Op, Value
from ..ops.binary import Add
from ..ops.bits import WithinBits
from ..ops.fused import FUSED, FusedLayer
from ..ops.unary import Clamp, Hardtanh, Relu
from .rewriting import Uses, rewrite

LIMITS: dict[type[Op], Callable[[Any], tuple[float, float]]] = {
    Relu: lambda a: (0.0, math.inf),
    Hardtanh: lambda a: (a.low, a.high),
    Clamp: lambda a: (a.low, a.high),
}


def fuse_layers(graph: Graph) -> Graph:
    """add(r, conv(x, w)) and relu(conv(x, w)) become conv2d_fused; linear and depthwise too.

    The sum is made in the memory of r, and no second pass over the result is needed.
    """
    return _fuse_clamps(_fuse_adds(graph))


def _fuse_adds(graph: Graph) -> Graph:
    uses = Uses(graph)
    order = {node.out: i for i, node in enumerate(graph.nodes)}
    layers: dict[Value, Node] = {}  # as rewritten so far

    def layer_before(value: Value, add: Node) -> Node | None:
        """The layer that makes the value for this addition alone, and immediately before it."""
        if value not in layers or uses.only_reader(value) is None:
            return None
        between = graph.nodes[order[value] + 1 : order[add.out]]
        fits = all(n.op.view or n.op is WithinBits for n in between)
        return layers[value] if fits else None

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op in FUSED:
            layers[node.out] = node
        if node.op is not Add or not node.ins[0].type == node.ins[1].type == node.out.type:
            return None
        for value, other in (node.ins, node.ins[::-1]):
            layer = layer_before(value, node)
            if layer is not None:
                b.loc = layer.loc
                attrs = asdict(layer.attrs) | {"bias": len(layer.ins) > 2, "add": True}
                return (b.emit(FUSED[layer.op], *layer.ins, other, **attrs),)
        return None

    return rewrite(graph, rule)


def _fuse_clamps(graph: Graph) -> Graph:
    uses = Uses(graph)
    layers: dict[Value, Node] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op in FUSED or (issubclass(node.op, FusedLayer) and not node.attrs.clamps):
            layers[node.out] = node
        layer = layers.get(node.ins[0]) if node.op in LIMITS else None
        if layer is None or uses.only_reader(layer.out) is None:
            return None
        b.loc = layer.loc
        attrs = {"bias": len(layer.ins) > 2} | asdict(layer.attrs)
        attrs["low"], attrs["high"] = LIMITS[node.op](node.attrs)
        return (b.emit(FUSED.get(layer.op, layer.op), *layer.ins, **attrs),)

    return rewrite(graph, rule)
