"""Fuse an activation and the product behind it: SwiGLU and its relatives."""

from __future__ import annotations

from ..ir import Builder, Graph, Node, Value
from ..ops.binary import Mul
from ..ops.unary import Unary
from .rewriting import rewrite
from .spelling import Spelling, sides


def fuse_gates(graph: Graph) -> Graph:
    """silu(a) * b becomes swiglu, and so do other activations that have a gate.

    That saves a pass over memory in each direction, and silu(a) is not kept.
    """
    spelling = Spelling(graph)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        if node.op is not Mul:
            return None
        for y, other in sides(node):
            made = spelling.uses.producer.get(y)
            gate = made.op.gate if made is not None and issubclass(made.op, Unary) else None
            if made is None or gate is None or y.shape != other.shape:
                continue
            if spelling.uses.only_reader(y) is not None:
                return (b.emit(gate, made.ins[0], other, name=node.out.name),)
        return None

    return rewrite(graph, rule)
