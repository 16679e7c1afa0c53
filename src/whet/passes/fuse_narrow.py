"""Requantize the sums of an int8 layer as they are computed, so that they are never stored as
int32."""

from __future__ import annotations

from dataclasses import asdict

from ..ir import Builder, Graph, Node, Value
from ..ops.binary import Add
from ..ops.conv_i8 import Conv2dI8
from ..ops.fused_i8 import NarrowedLayer
from ..ops.quantized import Requantize
from .rewriting import Uses, rewrite


def fuse_narrow(graph: Graph) -> Graph:
    """requantize(conv2d_i8(x, w, b), scale) becomes conv2d_i8_fused; likewise for depthwise layers.

    So does requantize(conv2d_i8(x, w, b) + conv2d_i8(x2, w2), scale), the form of a convolution
    that trains in some channels.
    """
    uses = Uses(graph)
    made: dict[Value, Node] = {}

    def only(value: Value) -> Node | None:
        """The node that computes a value that has a single reader."""
        return made.get(value) if uses.only_reader(value) is not None else None

    def layers_of(sums: Value) -> tuple[Node, Node | None] | None:
        node = only(sums)
        if node is None:
            return None
        if NarrowedLayer.of(node.op) is not None:
            return node, None
        if node.op is not Add:
            return None
        whole, part = (only(v) for v in node.ins)
        if whole is None or part is None or whole.op is not Conv2dI8 or part.op is not Conv2dI8:
            return None
        if whole.attrs != part.attrs or len(part.ins) > 2:
            return None
        return whole, part

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        made.update((v, node) for v in node.outs)
        found = layers_of(node.ins[0]) if node.op is Requantize else None
        if found is None or node.ins[1].shape != node.out.shape[-1:]:
            return None
        layer, part = found
        form = NarrowedLayer.of(layer.op)
        assert form is not None
        attrs = asdict(layer.attrs) | asdict(node.attrs)
        attrs |= {"x_zero": layer.attrs.zero, "bias": len(layer.ins) > 2, "part": part is not None}
        second = part.ins if part is not None else ()
        b.loc = layer.loc
        operands = (*layer.ins, node.ins[1], *second)
        return b.emit_all(form, *operands, name=node.out.name, **attrs)

    return rewrite(graph, rule)
