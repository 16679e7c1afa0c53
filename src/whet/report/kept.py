"""What the forward pass keeps for the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import Graph

if TYPE_CHECKING:
    from ..memory.plan import Buffer, Plan


def loss_step(graph: Graph) -> int:
    """The index of the node that computes the loss; the backward pass and updates follow.

    An entry point without updates is all forward; one without outputs has no forward pass.
    """
    if not graph.state:
        return len(graph.nodes)
    makers = {v: i for i, node in enumerate(graph.nodes) for v in node.outs}
    return makers.get(graph.outputs[0], -1) if graph.outputs else -1


def kept_buffers(plan: Plan) -> list[Buffer]:
    """The buffers that the forward pass keeps for the backward pass; the loss is a result."""
    loss = loss_step(plan.graph)
    results = {plan.home[v] for v in plan.graph.outputs}
    return [b for b in plan.buffers if b.first <= loss < b.last and b not in results]
