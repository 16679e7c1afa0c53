"""Recompute the output of a normalisation in the backward pass, instead of keeping it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from ..ir import Builder, Graph, Loc, Node, Value
from ..ops.norm import BatchNorm, BatchNormClipped, BatchNormTrain

Renewed = tuple[tuple[Value, ...], dict[str, Any], Loc]  # operands, attributes, location


def renew_norms(graph: Graph) -> Graph:
    """Gradients after a batch norm read y = batch_norm_clipped(x, w, b, mean, var).

    Its own gradient keeps x, mean and var anyway, so neither y nor the result of a ReLU on y need
    be kept. That halves what a network keeps, and one pass over data in the cache costs less than
    reading as much from memory. A batch norm with fixed statistics keeps x only if its weight
    trains; otherwise nothing is gained.
    """
    made = {v: i for i, node in enumerate(graph.nodes) for v in node.outs}
    loss = max((made.get(v, -1) for v in graph.outputs), default=-1)
    norms = dict(_norms(graph, loss))
    b = Builder.extend(graph, graph.name)
    b.nodes, b.state = [], []
    again: dict[Value, Value] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.ins if i > loss else ():
            if value in norms and value not in again:
                operands, attrs, b.loc = norms[value]
                name = f"{value.name}.again"
                again[value] = b.emit(BatchNormClipped, *operands, name=name, **attrs)
        ins = tuple(again.get(v, v) for v in node.ins) if i > loss else node.ins
        b.nodes.append(replace(node, ins=ins))
    b.state = list(graph.state)
    return b.finish(graph.outputs)


def _norms(graph: Graph, loss: int) -> Iterator[tuple[Value, Renewed]]:
    """Results of normalisations whose operand is also read after the loss."""
    read = {v for node in graph.nodes[loss + 1 :] for v in node.ins}
    kept = {*graph.outputs, *(nxt for _, nxt in graph.state)}
    frozen: dict[Value, Node] = {}  # results of those with fixed statistics
    for node in graph.nodes[: loss + 1]:
        if node.out in kept:
            continue
        if node.op is BatchNormTrain and node.ins[0] in read:
            yield node.out, ((*node.ins, *node.outs[1:]), asdict(node.attrs), node.loc)
        elif node.op is BatchNorm and node.ins[0] in read:
            frozen[node.out] = node
            yield node.out, (node.ins, asdict(node.attrs), node.loc)
        elif (limits := node.op.limits(node.attrs)) is not None and node.ins[0] in frozen:
            norm = frozen[node.ins[0]]
            low, high = limits
            attrs = asdict(norm.attrs) | {"low": low, "high": high}
            yield node.out, (norm.ins, attrs, norm.loc)
