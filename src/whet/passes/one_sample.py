"""Derive the prediction of a single sample from that of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import ShapeError
from ..ir import Graph, Role, Value, verify
from .rewriting import Uses
from .shorter import Along, Fewer, resized


def one_sample(entries: Mapping[str, Graph]) -> dict[str, Graph]:
    """The entry points and `predict_one`, if a single sample can be predicted."""
    single = for_one_sample(entries["predict"])
    added = {} if single is None else {"predict_one": replace(single, name="predict_one")}
    return {**entries, **added}


def for_one_sample(graph: Graph) -> Graph | None:
    """The graph with the batch removed from every shape, or None if that is impossible.

    The inputs and outputs must be batches, along their first axis, of samples that do not affect
    each other. Every value that depends on an input must then have exactly one axis that shrinks by
    the batch size. A constant may be repeated for every sample, too.
    """
    return _with_constants(graph, {}) or _with_constants(graph, _repeated(graph))


def _repeated(graph: Graph) -> dict[Value, Along]:
    """Constants that do not vary along an axis as long as the batch, and that axis."""
    size = _size(graph)
    found = {}
    for leaf in graph.leaves_of(Role.CONST):
        for axis in (k for k, n in enumerate(leaf.shape) if n == size):
            data = graph.data[leaf.name]
            if (data == data.take([0], axis)).all():
                found[leaf] = Along(axis)
                break
    return found


def _size(graph: Graph) -> int | None:
    sizes = {leaf.shape[0] if leaf.shape else 1 for leaf in graph.leaves_of(Role.INPUT)}
    return sizes.pop() if len(sizes) == 1 else None


def _with_constants(graph: Graph, repeated: Mapping[Value, Along]) -> Graph | None:
    size, inputs = _size(graph), graph.leaves_of(Role.INPUT)
    if size is None or size == 1:
        return None
    fewer, batches = Fewer(size), {v: Along(0) for v in inputs} | dict(repeated)
    now = {v: replace(v, type=resized(v.type, batch.axis, 1)) for v, batch in batches.items()}
    uses, nodes = Uses(graph), []
    for node in graph.nodes:
        ins = tuple(now.get(v, v) for v in node.ins)
        again = replace(node, ins=ins, attrs=fewer.attributes(node, batches))
        if again.ins == node.ins and again.attrs == node.attrs:
            nodes.append(node)
            continue
        try:
            outs = tuple(replace(v, type=t) for v, t in zip(node.outs, again.inferred, strict=True))
        except ShapeError:
            return None
        for old, new in zip(node.outs, outs, strict=True):
            found = fewer.found(node, old, new, batches)
            if found is not None:
                batches[old] = found
            elif old in uses.readers or old in uses.kept:
                return None
        now.update(zip(node.outs, outs, strict=True))
        nodes.append(replace(again, outs=outs))
    if any(batches.get(v) != Along(0) or now[v].shape[0] != 1 for v in graph.outputs):
        return None
    leaves, outputs = (tuple(now.get(v, v) for v in part) for part in (graph.leaves, graph.outputs))
    once = {v.name: graph.data[v.name].take([0], batch.axis) for v, batch in repeated.items()}
    data = {**graph.data, **once}
    made = replace(graph, leaves=leaves, nodes=tuple(nodes), outputs=outputs, data=data)
    verify(made)
    return made
