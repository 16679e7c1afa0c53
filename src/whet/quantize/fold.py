"""Put batch norm into the layer before it, for good: an integer layer trains what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from ..ir import Array, Builder, Graph, Node, Role, Value
from ..ir.quant import Fold
from ..ops.norm import BatchNorm
from ..ops.shape import Reshape
from ..passes.fold_batch_norm import OUTPUT_AXIS
from ..passes.rewriting import Uses, rewrite


def fold_norms(graph: Graph) -> tuple[Graph, dict[str, Fold]]:
    """batch_norm(layer(x, w)) becomes layer(x, w', beta'): w and beta keep names, not numbers.

    w' = w * s, beta' = beta + (b - mean) * s, s = gamma / sqrt(var + eps). Unlike
    `fold_batch_norm` it folds what trains as well: afterwards there is no gamma. Between a layer of
    signals and its norm there is a view, which then follows the layer.
    """
    uses = Uses(graph)
    layers: dict[Value, Node] = {}
    folds: dict[str, Fold] = {}

    def leaf_of(value: Value) -> Value:
        node = uses.producer.get(value)
        return leaf_of(node.ins[0]) if node is not None and node.op is Reshape else value

    def known(b: Builder, value: Value) -> Array | None:
        leaf = leaf_of(value)
        if leaf.role not in (Role.CONST, Role.PARAM, Role.STATE) or leaf.name not in b.data:
            return None
        return np.asarray(b.data[leaf.name], np.float64).reshape(value.shape)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op in OUTPUT_AXIS:
            layers[node.out] = node
        layer = layer_before(uses, layers, node.ins[0]) if node.op is BatchNorm else None
        if layer is None:
            return None
        _, gamma, beta, mean, var = node.ins
        weight, own = layer.ins[1], layer.ins[2:]
        arrays = [known(b, v) for v in (gamma, beta, mean, var, weight, *own)]
        if any(a is None for a in arrays) or shared(uses, leaf_of(weight)) or shared(uses, beta):
            return None
        g, t, m, v, w, *bias = (a for a in arrays if a is not None)
        scale = g / np.sqrt(v + node.attrs.eps)
        shape = [1] * w.ndim
        shape[OUTPUT_AXIS[layer.op]] = -1
        leaf = leaf_of(weight)
        b.data[leaf.name] = (w * scale.reshape(shape)).reshape(leaf.shape)
        shift = (sum(bias) - m) * scale
        b.data[beta.name] = t + shift
        folds[leaf.name] = Fold(scale, np.zeros_like(scale))
        folds[beta.name] = Fold(np.ones_like(scale), shift)
        b.loc = layer.loc
        y = b.emit(layer.op, layer.ins[0], weight, beta, **asdict(layer.attrs))
        same = y.shape == node.out.shape
        return (y if same else b.emit(Reshape, y, shape=node.out.shape),)

    return rewrite(graph, rule), folds


def layer_before(uses: Uses, layers: Mapping[Value, Node], value: Value) -> Node | None:
    """The layer whose result this is, or is a view of by channel, if nothing else reads it."""
    if uses.only_reader(value) is None:
        return None
    view = uses.producer.get(value)
    if view is None or view.op is not Reshape:
        return layers.get(value)
    same = view.ins[0].shape[-1] == value.shape[-1]
    return layer_before(uses, layers, view.ins[0]) if same else None


def shared(uses: Uses, leaf: Value) -> bool:
    """Whether more than one layer reads the leaf, views of it included."""
    readers = uses.readers.get(leaf, [])
    if len(readers) == 1 and readers[0].op is Reshape:
        return shared(uses, readers[0].out)
    return len(readers) != 1
