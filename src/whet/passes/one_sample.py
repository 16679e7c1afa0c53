"""The prediction of a batch, made for a batch of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..errors import ShapeError
from ..ir import Graph, Node, Role, Value, verify
from ..ops.reduce import Expand
from ..ops.shape import Reshape
from .rewriting import Uses


@dataclass(frozen=True)
class Batch:
    """Where in a value its batch is: within `axis`, which is outer x samples x the rest."""

    axis: int
    outer: int = 1


def one_sample(graph: Graph) -> Graph | None:
    """The graph with the batch taken out of every shape, or None if some value does not follow.

    The inputs and outputs must be batches, along their first axis. Every value that depends on an
    input must then have one axis, whichever it is, that is shorter by the size of the batch.
    """
    inputs = graph.leaves_of(Role.INPUT)
    sizes = {leaf.shape[0] if leaf.shape else 1 for leaf in inputs}
    if len(sizes) != 1 or sizes == {1}:
        return None
    uses, (size,) = Uses(graph), sizes
    now = {v: replace(v, type=replace(v.type, shape=(1, *v.shape[1:]))) for v in inputs}
    batches = {v: Batch(0) for v in inputs}
    nodes = []
    for node in graph.nodes:
        ins = tuple(now.get(v, v) for v in node.ins)
        again = replace(node, ins=ins, attrs=_attributes(node, batches, size))
        if again.ins == node.ins and again.attrs == node.attrs:
            nodes.append(node)
            continue
        try:
            outs = tuple(replace(v, type=t) for v, t in zip(node.outs, again.inferred, strict=True))
        except ShapeError:
            return None
        for old, new in zip(node.outs, outs, strict=True):
            found = _batch(node, old, new, batches, size)
            if found is not None:
                batches[old] = found
            elif old in uses.readers or old in uses.kept:
                return None
        now.update(zip(node.outs, outs, strict=True))
        nodes.append(replace(again, outs=outs))
    if any(batches.get(v) != Batch(0) or now[v].shape[0] != 1 for v in graph.outputs):
        return None
    leaves, outputs = (tuple(now.get(v, v) for v in part) for part in (graph.leaves, graph.outputs))
    made = replace(graph, leaves=leaves, nodes=tuple(nodes), outputs=outputs)
    verify(made)
    return made


def _batch(
    node: Node, old: Value, new: Value, batches: Mapping[Value, Batch], size: int
) -> Batch | None:
    """Where the batch is in a result: in the one axis along which it is shorter now."""
    pairs = zip(old.shape, new.shape, strict=True)
    axes = [k for k, (before, after) in enumerate(pairs) if before != after]
    if len(axes) != 1 or old.shape[axes[0]] != size * new.shape[axes[0]]:
        return None
    (axis,) = axes
    if node.op is Reshape:
        return _reshaped(node.ins[0], old.shape, batches[node.ins[0]], size)
    given = [(v, batches[v]) for v in node.ins if v in batches]
    outer = {batch.outer for _, batch in given}
    same = all(v.shape[batch.axis] == old.shape[axis] for v, batch in given)
    if outer <= {1} or (same and len(outer) == 1):
        return Batch(axis, *outer)
    return None


def _reshaped(value: Value, shape: tuple[int, ...], batch: Batch, size: int) -> Batch | None:
    """Where the batch of a value is if its numbers, in their order, get another shape."""
    outer = prod(value.shape[: batch.axis]) * batch.outer
    for axis, n in enumerate(shape):
        before = prod(shape[:axis])
        if outer % before == 0 and n % (outer // before * size) == 0:
            return Batch(axis, outer // before)
    return None


def _attributes(node: Node, batches: Mapping[Value, Batch], size: int) -> Any:
    """The node's attributes for one sample: shapes that are spelled out have the batch in them."""
    if node.op not in (Reshape, Expand):
        return node.attrs
    shape, value = list(node.attrs.shape), node.ins[0]
    batch, more = batches.get(value), len(shape) - value.type.rank
    if batch is None:  # a value that is repeated for every sample
        once = node.op is Expand and shape[0] == size and (more or value.shape[0] == 1)
        axis = 0 if once else None
    elif node.op is Expand:
        axis = batch.axis + more
    else:
        found = _reshaped(value, node.attrs.shape, batch, size)
        axis = None if found is None else found.axis
    if axis is None:
        return node.attrs
    shape[axis] //= size
    return replace(node.attrs, shape=tuple(shape))
