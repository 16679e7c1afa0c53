"""Differentiate a Graph at compile time: one walk back that emits only what is needed.

The cotangent of a value is the sum over all its uses: a residual connection, a value used three
times and a parameter shared by two layers all add.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from ..errors import FrontendError
from ..ir import Builder, Graph, Link, Node, Relation, Value
from ..ops.binary import Add

OnGradient = Callable[[Value, Value], None]


def reaches(graph: Graph, trained: Collection[Value]) -> set[Value]:
    """Every value that depends on a trained leaf through differentiable operators."""
    found = set(trained)
    for node in graph.nodes:
        if node.op.differentiable and any(v in found for v in node.ins):
            found.update(node.outs)
    return found


def backward(
    b: Builder,
    graph: Graph,
    seeds: dict[Value, Value],
    trained: Collection[Value],
    on_gradient: OnGradient,
) -> None:
    """Append to `b` the gradient of `graph` for the `trained` leaves, from output cotangents.

    `on_gradient(leaf, gradient)` is called as soon as a leaf's gradient is complete, so that an
    update emitted there is the last reader of that gradient.
    """
    wanted = reaches(graph, trained)
    grads: dict[Value, Value] = {v: d for v, d in seeds.items() if v in wanted}
    first_use: dict[Value, Node] = {}
    for node in graph.nodes:
        for value in node.ins:
            first_use.setdefault(value, node)
    trained_by_first_use: dict[Node, list[Value]] = {}
    for leaf in trained:
        if leaf in first_use:
            trained_by_first_use.setdefault(first_use[leaf], []).append(leaf)

    for node in reversed(graph.nodes):
        _node_backward(b, node, grads, wanted)
        for leaf in trained_by_first_use.get(node, ()):
            if leaf in grads:
                on_gradient(leaf, grads.pop(leaf))
    for leaf in trained:  # no node uses it: it is itself an output
        if leaf in grads:
            on_gradient(leaf, grads.pop(leaf))


def _node_backward(
    b: Builder, node: Node, grads: dict[Value, Value], wanted: Collection[Value]
) -> None:
    douts = tuple(grads.pop(v, None) for v in node.outs)
    if all(d is None for d in douts) or not node.op.differentiable:
        return
    wants = tuple(v in wanted for v in node.ins)
    if not any(wants):
        return
    b.loc, b.scope = node.loc, f"d.{node.out.name}."
    b.link = Link(Relation.COTANGENT, node.out.name)
    for value, grad in zip(node.ins, node.op.vjp(b, node, douts, wants), strict=True):
        if grad is None or value not in wanted:
            continue
        if value in grads:
            grad = b.emit(Add, grads[value], grad, name=f"d.{value.name}")
        grads[value] = grad
    b.scope, b.link = "", None


def loss_seed(b: Builder, loss: Value) -> Value:
    if loss.shape != ():
        raise FrontendError(
            f"the loss has shape {loss.shape}; training needs a single number",
            try_="use reduction='mean' or 'sum'",
        )
    return b.const(np.float32(1.0), name="one")
