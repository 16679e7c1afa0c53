"""Which part of a step a node belongs to."""

from __future__ import annotations

from ..ir import Graph, Node
from ..ops import settle, update
from ..ops.settle import StepOp
from ..ops.update import UpdateOp

PHASES = ("forward", "backward", "update")
UPDATES = (settle.__name__, update.__name__)


def phases_of(graph: Graph) -> dict[Node, str]:
    """The phase of every node; an entry point without updates is all forward."""
    loss = graph.outputs[0] if graph.state and graph.outputs else None
    phase, found = "forward", {}
    for node in graph.nodes:
        updates = node.op.__module__ in UPDATES or issubclass(node.op, (UpdateOp, StepOp))
        found[node] = "update" if updates else phase
        if loss in node.outs:
            phase = "backward"
    return found
