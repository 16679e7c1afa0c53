"""Put a frozen batch norm into the convolution before it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..ir import Array, Builder, Graph, Node, Role, Value
from ..ops.binary import Add
from ..ops.conv import Conv2d, Depthwise
from ..ops.linear import Linear
from ..ops.norm import BatchNorm
from ..ops.shape import Reshape
from ._rewrite import Uses, rewrite

OUTPUT_AXIS = {Conv2d: 0, Depthwise: -1, Linear: 0}


def fold_batch_norm(graph: Graph, trained: Collection[str]) -> Graph:
    """batch_norm(conv(x, w)) becomes conv(x, w * s, t) where w and the scale do not train.

    s = gamma / sqrt(var + eps), t = beta - mean * s. A beta that trains stays a parameter: the
    bias is then beta plus a constant, whose gradient is beta's.
    """
    uses = Uses(graph)
    layers: dict[Value, Node] = {}  # convolutions and linear layers as rewritten so far

    def known(value: Value) -> Array | None:
        """The content of a value that no entry point changes."""
        node = uses.producer.get(value)
        if node is not None and node.op is Reshape:
            inner = known(node.ins[0])
            return None if inner is None else inner.reshape(value.shape)
        if value.role is Role.CONST or (value.role is Role.PARAM and value.name not in trained):
            return np.asarray(graph.data[value.name], np.float64)
        return None

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op in OUTPUT_AXIS:
            layers[node.out] = node
        if node.op is not BatchNorm:
            return None
        conv = layers.get(node.ins[0])
        if conv is None or uses.only_reader(conv.out) is None:
            return None
        weight, gamma, mean, var = (known(v) for v in (conv.ins[1], node.ins[1], *node.ins[3:]))
        if weight is None or gamma is None or mean is None or var is None:
            return None
        scale = gamma / np.sqrt(var + node.attrs.eps)
        shape = [1] * weight.ndim
        shape[OUTPUT_AXIS[conv.op]] = -1
        name = node.out.name
        shift = -mean * scale
        if len(conv.ins) > 2:
            bias = known(conv.ins[2])
            if bias is None:
                return None
            shift = shift + bias * scale
        beta = known(node.ins[2])
        folded = b.const(weight * scale.reshape(shape), name=f"{name}.folded_weight")
        if beta is not None:
            offset = b.const(beta + shift, name=f"{name}.folded_bias")
        else:
            constant = b.const(shift, name=f"{name}.folded_shift")
            offset = b.emit(Add, node.ins[2], constant, name=f"{name}.folded_bias")
        attrs = {f: getattr(conv.attrs, f) for f in conv.attrs.__dataclass_fields__}
        return (b.emit(conv.op, conv.ins[0], folded, offset, name=name, **attrs),)

    return rewrite(graph, rule)
