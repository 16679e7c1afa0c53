"""Compute what a normalisation gave again on the way back, instead of keeping it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from ..ir import Builder, Graph, Node, Value
from ..ops.norm import BatchNormClipped, BatchNormTrain


def renew_norms(graph: Graph) -> Graph:
    """The gradients behind a batch_norm_train read y = batch_norm_clipped(x, w, b, mean, var).

    Its own gradient keeps x, mean and var anyway, so y need not be kept beside them. That halves
    what a network keeps, and one walk over numbers near the processor costs less than to fetch as
    many from memory.
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
                norm = norms[value]
                b.loc, name = norm.loc, f"{value.name}.again"
                operands = (*norm.ins, *norm.outs[1:])
                again[value] = b.emit(BatchNormClipped, *operands, name=name, **asdict(norm.attrs))
        ins = tuple(again.get(v, v) for v in node.ins) if i > loss else node.ins
        b.nodes.append(replace(node, ins=ins))
    b.state = list(graph.state)
    return b.finish(graph.outputs)


def _norms(graph: Graph, loss: int) -> Iterator[tuple[Value, Node]]:
    """Results of normalisations whose operand is read behind the loss as well."""
    read = {v for node in graph.nodes[loss + 1 :] for v in node.ins}
    kept = {*graph.outputs, *(nxt for _, nxt in graph.state)}
    for node in graph.nodes[: loss + 1]:
        if node.op is BatchNormTrain and node.out not in kept and node.ins[0] in read:
            yield node.out, node
