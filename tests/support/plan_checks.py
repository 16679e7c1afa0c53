"""What must hold for every plan."""

from __future__ import annotations

import numpy as np

from strategies import feed
from whet.ir import Array, Graph, Role, Value
from whet.ir.interp import interpret, run_reference
from whet.memory.plan import Plan, plan


class Arena:
    """Runs a plan as the C program does: leaves in place, everything else in one byte array.

    Every byte starts as 0xFF, which is NaN in every float, and a kernel's result is written only
    after all its operands were read; what a kernel tolerates is the concern of `shares_safely`.
    """

    def __init__(self, planned: Plan, values: dict[str, Array]) -> None:
        self.plan, graph = planned, planned.graph
        self.memory = np.full(planned.arena, 0xFF, np.uint8)
        self.leaves = {
            leaf: np.array(values.get(leaf.name, graph.data.get(leaf.name)), leaf.type.dtype.numpy)
            for leaf in graph.leaves
        }
        self.results = {
            v: np.full(v.type.elements, 0, v.type.dtype.numpy)
            for v in graph.outputs
            if planned.home[v] is v and v.role is Role.TEMP
        }

    def view(self, value: Value) -> Array:
        """The bytes where the plan puts this value, as an array."""
        home = self.plan.home[value]
        if isinstance(home, Value):
            flat = (self.leaves | self.results)[home].reshape(-1)
        else:
            span = self.memory[home.offset : home.offset + value.type.bytes]
            flat = span.view(value.type.dtype.numpy)
        return flat.reshape(value.shape)

    def run(self) -> tuple[list[Array], dict[str, Array]]:
        graph = self.plan.graph
        for node in graph.nodes:
            if not node.op.view:
                outs = run_reference(node, [self.view(v).copy() for v in node.ins])
                for value, array in zip(node.outs, outs, strict=True):
                    self.view(value)[...] = np.asarray(array, value.type.dtype.numpy)
        outputs = [self.view(v).copy() for v in graph.outputs]
        for leaf, nxt in self.plan.copies:
            self.view(leaf)[...] = self.view(nxt)
        return outputs, {leaf.name: self.leaves[leaf] for leaf, _ in graph.state}


def runs_like_the_graph(graph: Graph) -> Plan:
    """Assert that the plan of a graph computes what the graph says; bit for bit."""
    planned, values = plan(graph), feed(graph)
    outputs, state = interpret(graph, values)
    given_outputs, given_state = Arena(planned, values).run()
    np.testing.assert_equal(given_outputs, outputs)
    np.testing.assert_equal(given_state, state)
    return planned


def shares_safely(planned: Plan) -> None:
    """Assert that a result lies on an operand only where its kernel allows that."""
    for node in planned.graph.nodes:
        if node.op.view:
            assert planned.home[node.out] == planned.home[node.ins[0]]
            continue
        for i, out in enumerate(node.outs):
            for k, operand in enumerate(node.ins):
                if planned.home[out] == planned.home[operand]:
                    assert (i, k) in node.op.inplace(node), f"{out} overwrites {operand}"
            others = [planned.home[v] for j, v in enumerate(node.outs) if j != i]
            assert planned.home[out] not in others, f"{out} has no place of its own"
