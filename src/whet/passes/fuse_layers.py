"""Put the addition and the clamp that follow a layer into it."""

from __future__ import annotations

from dataclasses import asdict

from ..ir import Builder, Graph, Node, Value
from ..ops.binary import Add
from ..ops.bits import WithinBits
from ..ops.fused import FusedLayer
from .rewriting import Uses, rewrite


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
        if FusedLayer.of(node.op) is not None:
            layers[node.out] = node
        if node.op is not Add or not node.ins[0].type == node.ins[1].type == node.out.type:
            return None
        for value, other in (node.ins, node.ins[::-1]):
            layer = layer_before(value, node)
            form = None if layer is None else FusedLayer.of(layer.op)
            if layer is not None and form is not None:
                b.loc = layer.loc
                attrs = asdict(layer.attrs) | {"bias": len(layer.ins) > 2, "add": True}
                return (b.emit(form, *layer.ins, other, **attrs),)
        return None

    return rewrite(graph, rule)


def _fuse_clamps(graph: Graph) -> Graph:
    uses = Uses(graph)
    layers: dict[Value, Node] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        open_end = issubclass(node.op, FusedLayer) and not node.attrs.clamps
        if open_end or FusedLayer.of(node.op) is not None:
            layers[node.out] = node
        limits = node.op.limits(node.attrs)
        layer = None if limits is None else layers.get(node.ins[0])
        if limits is None or layer is None or uses.only_reader(layer.out) is None:
            return None
        b.loc = layer.loc
        attrs = {"bias": len(layer.ins) > 2} | asdict(layer.attrs)
        attrs["low"], attrs["high"] = limits
        return (b.emit(FusedLayer.of(layer.op) or layer.op, *layer.ins, **attrs),)

    return rewrite(graph, rule)
