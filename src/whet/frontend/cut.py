"""Cut a model in two at a value that everything after it is computed from.

Where only layers after the cut train, the first part is frozen: its results can be computed once
for every sample, and the second part trains on them with the same numbers as in the whole model.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

from ..ir import DType, Graph, Node, Role, Value, prune, verify
from .model import Imported, Model, Tensor, plain_order


@dataclass(frozen=True)
class Cut:
    """The one value that everything after it is computed from."""

    name: str
    position: int  # of the node that makes it, in the training graph
    bytes: int


def cuts(model: Model, most: int) -> list[Cut]:
    """All cuts, in graph order; none if the model has state that changes as it runs.

    Training and prediction must reach the value by the same nodes, with samples along its first
    axis. Values of more than `most` bytes per batch are left out, and so are floats in an integer
    model, as they could differ between machines.
    """
    graph = model.training.graph
    inputs = graph.leaves_of(Role.INPUT)
    if graph.state or len(inputs) != 1:
        return []
    whole = any(v.type.dtype is DType.I8 for node in graph.nodes for v in node.outs)
    last: dict[Value, int] = {}
    for i, node in enumerate(graph.nodes):
        last.update(dict.fromkeys(node.ins, i))
    last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    same = shared_nodes(graph, model.prediction.graph)
    batch = inputs[0].shape[:1]
    found = []
    alive = {inputs[0]}
    for i, node in enumerate(graph.nodes[:same]):
        alive |= set(node.outs)
        alive = {v for v in alive if last.get(v, -1) > i}
        if len(alive) == 1:
            (value,) = alive
            fits = value.type.bytes <= most and (not whole or value.type.dtype is DType.I8)
            if value in node.outs and fits and value.shape[:1] == batch:
                found.append(Cut(value.name, i, value.type.bytes))
    return found


def shared_nodes(one: Graph, other: Graph) -> int:
    """How many of their first nodes are the same, with the same constants."""

    def words(graph: Graph, node: Node) -> tuple[object, ...]:
        data = tuple(graph.data[v.name].tobytes() for v in node.ins if v.name in graph.data)
        return (node.op, str(node.attrs), *(v.name for v in (*node.ins, *node.outs)), data)

    pairs = zip(one.nodes, other.nodes, strict=False)
    alike = itertools.takewhile(lambda pair: words(one, pair[0]) == words(other, pair[1]), pairs)
    return sum(1 for _ in alike)


def cut_before(model: Model, names: Collection[str], found: Collection[Cut]) -> Cut | None:
    """The last cut before any of these parameters is used."""
    first = min(
        i for i, n in enumerate(model.training.graph.nodes) if any(v.name in names for v in n.ins)
    )
    return max((c for c in found if c.position < first), key=lambda c: c.position, default=None)


def after(model: Model, cut: Cut) -> Model:
    """The model after the cut, with the value as its input."""
    training, prediction = (
        with_input(part, cut.name) for part in (model.training, model.prediction)
    )
    return replace(model, training=training, prediction=prediction, quants={})


def before(model: Model, cut: Cut) -> Model:
    """A model that predicts the value."""
    graph = model.prediction.graph
    value = next(v for n in graph.nodes for v in n.outs if v.name == cut.name)
    alone = prune(replace(graph, outputs=(value,)))
    verify(alone)
    output = Tensor(value, plain_order(value.type.rank))
    return replace(model, prediction=replace(model.prediction, graph=alone, outputs=(output,)))


def with_input(part: Imported, name: str) -> Imported:
    graph = part.graph
    old = next(v for n in graph.nodes for v in n.outs if v.name == name)
    new = Value(name, old.type, Role.INPUT)

    def renewed(node: Node) -> Node:
        if old not in node.ins:
            return node
        return replace(node, ins=tuple(new if v is old else v for v in node.ins))

    start = next(i for i, n in enumerate(graph.nodes) if old in n.outs) + 1
    kept = tuple(renewed(node) for node in graph.nodes[start:])
    leaves = (new, *(v for v in graph.leaves if v.role is not Role.INPUT))
    rest = prune(Graph(graph.name, leaves, kept, graph.outputs, graph.state, graph.data))
    verify(rest)
    orders = {**part.orders, name: plain_order(new.type.rank)}
    return replace(part, graph=rest, orders=orders)
