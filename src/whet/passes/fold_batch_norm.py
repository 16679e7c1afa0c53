"""Fold a batch norm into the layer before it.

batch_norm(layer(x, w, b)) is layer(x, w * s, beta + (b - mean) * s), s = gamma / sqrt(var + eps).
A float program folds only what no training step changes. An int8 program folds everything, once
and for good, and trains what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

import numpy as np

from ..ir import Array, Builder, Graph, Node, Role, Value
from ..ir.quant import Fold
from ..ops.binary import Add
from ..ops.norm import BatchNorm
from ..ops.shape import Reshape
from .rewriting import Uses, made_from, rewrite


@dataclass(frozen=True)
class Folded:
    """A layer, the norm behind it, and numbers of the layer that stands for both.

    Its bias is beta + shift; `beta` is None if it is not known.
    """

    layer: Node
    norm: Node
    weight: Array
    scale: Array
    shift: Array
    beta: Array | None


Write = Callable[[Builder, Folded], Value | None]


def fold_batch_norm(graph: Graph, changing: Collection[str]) -> Graph:
    """Fold where neither the weight nor the scale changes: both become constants.

    A beta that trains stays a parameter: the bias is then beta plus a constant, and its gradient is
    beta's.
    """

    uses = Uses(graph)

    def fixed(leaf: Value) -> bool:
        kept = leaf.role is Role.PARAM and leaf.name not in changing
        return kept or leaf.role is Role.CONST

    def write(b: Builder, f: Folded) -> Value:
        name = f.layer.out.name
        link = made_from(_leaf_of(uses, f.layer.ins[1]))
        weight = b.const(f.weight, name=f"{name}.folded_weight", link=link)
        if f.beta is not None:
            bias = b.const(f.beta + f.shift, name=f"{name}.folded_bias")
        else:
            constant = b.const(f.shift, name=f"{name}.folded_shift")
            bias = b.emit(Add, f.norm.ins[2], constant, name=f"{name}.folded_bias")
        return b.emit(f.layer.op, f.layer.ins[0], weight, bias, **asdict(f.layer.attrs))

    return _fold(graph, uses, fixed, write, views=False)


def fold_for_good(graph: Graph) -> tuple[Graph, dict[str, Fold]]:
    """Fold what trains as well: the weight and beta keep their names, not their numbers.

    Afterwards there is no gamma. A view between a layer of signals and its norm then follows the
    layer.
    """
    uses = Uses(graph)
    folds: dict[str, Fold] = {}

    def fixed(leaf: Value) -> bool:
        return leaf.role in (Role.CONST, Role.PARAM, Role.STATE) and leaf.name in graph.data

    def write(b: Builder, f: Folded) -> Value | None:
        (x, weight, *_), beta = f.layer.ins, f.norm.ins[2]
        leaf = _leaf_of(uses, weight)
        if f.beta is None or _shared(uses, leaf) or _shared(uses, beta):
            return None
        b.data[leaf.name] = f.weight.reshape(leaf.shape)
        b.data[beta.name] = f.beta + f.shift
        folds[leaf.name] = Fold(f.scale, np.zeros_like(f.scale))
        folds[beta.name] = Fold(np.ones_like(f.scale), f.shift)
        y = b.emit(f.layer.op, x, weight, beta, **asdict(f.layer.attrs))
        shape = f.norm.out.shape
        return y if y.shape == shape else b.emit(Reshape, y, shape=shape)

    return _fold(graph, uses, fixed, write, views=True), folds


def _fold(
    graph: Graph, uses: Uses, fixed: Callable[[Value], bool], write: Write, views: bool
) -> Graph:
    """`write` makes the layer that stands for both, or refuses; `fixed` leaves are constants."""
    layers: dict[Value, Node] = {}  # as rewritten so far

    def known(b: Builder, value: Value) -> Array | None:
        leaf = _leaf_of(uses, value)
        if not fixed(leaf):
            return None
        return np.asanyarray(b.data[leaf.name]).astype(np.float64).reshape(value.shape)

    def layer_before(value: Value) -> Node | None:
        """The layer whose result this is, or is a view of by channel, if nothing else reads it."""
        view = uses.producer.get(value)
        if uses.only_reader(value) is None:
            return None
        if not views or view is None or view.op is not Reshape:
            return layers.get(value)
        same = view.ins[0].shape[-1] == value.shape[-1]
        return layer_before(view.ins[0]) if same else None

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op.layer is not None and node.op.layer.bias:
            layers[node.out] = node
        layer = layer_before(node.ins[0]) if node.op is BatchNorm else None
        if layer is None or layer.op.layer is None:
            return None
        _, gamma, beta, mean, var = node.ins
        needed = [known(b, v) for v in (gamma, mean, var, *layer.ins[1:])]
        arrays = [array for array in needed if array is not None]
        if len(arrays) < len(needed):
            return None
        g, m, v, w, *bias = arrays
        scale = g / np.sqrt(v + node.attrs.eps)
        along = [1] * w.ndim
        along[layer.op.layer.outputs] = -1
        weight, shift = w * scale.reshape(along), (sum(bias) - m) * scale
        b.loc = layer.loc
        y = write(b, Folded(layer, node, weight, scale, shift, known(b, beta)))
        return None if y is None else (y,)

    return rewrite(graph, rule)


def _leaf_of(uses: Uses, value: Value) -> Value:
    """The leaf that a value is, or is a view of."""
    node = uses.producer.get(value)
    return _leaf_of(uses, node.ins[0]) if node is not None and node.op is Reshape else value


def _shared(uses: Uses, leaf: Value) -> bool:
    """Whether more than one layer reads the leaf, views of it included."""
    readers = uses.readers.get(leaf, [])
    if len(readers) == 1 and readers[0].op is Reshape:
        return _shared(uses, readers[0].out)
    return len(readers) != 1
