"""Put a frozen batch norm into the convolution before it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict

import numpy as np

from ..ir import Array, Builder, Graph, Node, Op, Role, Value
from ..ops.binary import Add
from ..ops.conv import Conv2d, Depthwise
from ..ops.linear import Linear
from ..ops.norm import BatchNorm
from ..ops.shape import Reshape
from .rewriting import Uses, rewrite

OUTPUT_AXIS: dict[type[Op], int] = {Conv2d: 0, Depthwise: -1, Linear: 0}


def fold_batch_norm(graph: Graph, changing: Collection[str]) -> Graph:
    """batch_norm(conv(x, w)) becomes conv(x, w * s, t) where w and the scale do not change.

    s = gamma / sqrt(var + eps), t = beta - mean * s. A beta that trains stays a parameter: the
    bias is then beta plus a constant, and its gradient is beta's.
    """
    uses = Uses(graph)
    layers: dict[Value, Node] = {}  # convolutions and linear layers as rewritten so far

    def known(value: Value) -> Array | None:
        """The content of a value that no entry point changes."""
        node = uses.producer.get(value)
        if node is not None and node.op is Reshape:
            inner = known(node.ins[0])
            return None if inner is None else inner.reshape(value.shape)
        if value.role is Role.CONST or (value.role is Role.PARAM and value.name not in changing):
            return np.asarray(graph.data[value.name], np.float64)
        return None

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op in OUTPUT_AXIS:
            layers[node.out] = node
        layer = layers.get(node.ins[0]) if node.op is BatchNorm else None
        if layer is None or uses.only_reader(layer.out) is None:
            return None
        _, gamma, beta, mean, var = node.ins
        fixed = {v: known(v) for v in (gamma, mean, var, *layer.ins[1:])}
        if any(array is None for array in fixed.values()):
            return None
        arrays = {v: array for v, array in fixed.items() if array is not None}
        scale = arrays[gamma] / np.sqrt(arrays[var] + node.attrs.eps)
        shift = (sum(arrays[v] for v in layer.ins[2:]) - arrays[mean]) * scale
        return (_folded(b, node, layer, arrays[layer.ins[1]], scale, shift, known(beta)),)

    return rewrite(graph, rule)


def _folded(
    b: Builder,
    norm: Node,
    layer: Node,
    weight: Array,
    scale: Array,
    shift: Array,
    beta: Array | None,
) -> Value:
    shape = [1] * weight.ndim
    shape[OUTPUT_AXIS[layer.op]] = -1
    name, b.loc = layer.out.name, layer.loc
    folded = b.const(weight * scale.reshape(shape), name=f"{name}.folded_weight")
    if beta is not None:
        bias = b.const(beta + shift, name=f"{name}.folded_bias")
    else:
        constant = b.const(shift, name=f"{name}.folded_shift")
        bias = b.emit(Add, norm.ins[2], constant, name=f"{name}.folded_bias")
    return b.emit(layer.op, layer.ins[0], folded, bias, **asdict(layer.attrs))
