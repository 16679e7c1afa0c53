"""Add a slice to an array without padding it with zeros."""

from __future__ import annotations

from ..ir import Builder, DType, Graph, Node, Value
from ..ops.binary import Add
from ..ops.put import PutAdd, SliceAdd
from ..ops.shape import SliceDx, TakeDx
from .rewriting import Uses, rewrite


def add_parts(graph: Graph) -> Graph:
    """add(base, slice_dx(u)) becomes slice_add(base, u), and with take_dx it becomes put_add."""
    uses = Uses(graph)
    parts: dict[Value, Node] = {}  # slice_dx and take_dx nodes as rewritten so far

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        contiguous = node.op is SliceDx and node.attrs.step == 1
        if contiguous or (node.op is TakeDx and node.attrs.skip < 0):
            parts[node.out] = node
        if node.op is not Add or not node.ins[0].type == node.ins[1].type == node.out.type:
            return None
        if node.out.type.dtype is not DType.F32:
            return None
        for value, base in (node.ins, node.ins[::-1]):
            part = parts.get(value)
            if part is None or uses.only_reader(value) is None:
                continue
            axis = part.attrs.axis
            if part.op is TakeDx:
                return (b.emit(PutAdd, base, *part.ins, axis=axis),)
            return (b.emit(SliceAdd, base, *part.ins, axis=axis, start=part.attrs.start),)
        return None

    return rewrite(graph, rule)
