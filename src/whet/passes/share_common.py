"""Compute common subexpressions once."""

from __future__ import annotations

from typing import Any

from ..ir import Builder, Graph, Node, Value
from .rewriting import rewrite


def share_common(graph: Graph) -> Graph:
    """A node that repeats an earlier one (operator, operands, attributes) is replaced by its
    results.

    Operators are pure, so this is always correct, also for dropout, whose randomness is an operand.
    """
    seen: dict[Any, tuple[Value, ...]] = {}

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        key = (node.op, node.ins, node.attrs)
        if key in seen:
            return seen[key]
        seen[key] = node.outs
        return None

    return rewrite(graph, rule)
