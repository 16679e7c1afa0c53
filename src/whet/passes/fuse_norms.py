"""Fuse the clamp after a normalisation with batch statistics into it."""

from __future__ import annotations

from collections.abc import Collection

from ..ir import Builder, Graph, Node, Value
from ..ops.norm import BatchNormTrain
from ..ops.unary import Hardtanh, Relu
from .rewriting import Uses, rewrite


def fuse_norms(graph: Graph, changing: Collection[str]) -> Graph:
    """relu(batch_norm_train(x)) becomes one operator, and so does its gradient.

    That saves a pass over the result in the forward pass. In the backward pass, the side of the
    clamp is recomputed from x, which the gradient reads anyway.
    """
    uses = Uses(graph)
    norms: dict[Value, Node] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op is BatchNormTrain:
            reader = uses.only_reader(node.outs[0])
            limits = None if reader is None else reader.op.limits(reader.attrs)
            if reader is None or limits is None or reader.op not in (Relu, Hardtanh):
                return None
            low, high = limits
            _, *moments = b.emit_all(
                BatchNormTrain, *node.ins, name=reader.out.name, eps=node.attrs.eps,
                low=low, high=high,
            )  # fmt: skip
            norms[node.outs[0]] = b.nodes[-1]
            return (node.outs[0], *moments)
        if node.op in (Relu, Hardtanh) and node.ins[0] in norms:
            return (norms[node.ins[0]].outs[0],)
        return None

    return rewrite(graph, rule)
