"""Derive the prediction of a single sample from that of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ..errors import ShapeError
from ..ir import Graph, Node, Role, Value, verify
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
    return _with_constants(graph, {}) or _with_constants(graph, repeated_constants(graph))


def repeated_constants(graph: Graph) -> dict[Value, Along]:
    """Constants that do not vary along an axis as long as the batch, and that axis."""
    size = batch_size(graph)
    found = {}
    for leaf in graph.leaves_of(Role.CONST):
        for axis in (k for k, n in enumerate(leaf.shape) if n == size):
            data = graph.data[leaf.name]
            if (data == data.take([0], axis)).all():
                found[leaf] = Along(axis)
                break
    return found


def batch_size(graph: Graph) -> int | None:
    sizes = {leaf.shape[0] if leaf.shape else 1 for leaf in graph.leaves_of(Role.INPUT)}
    return sizes.pop() if len(sizes) == 1 else None


def _with_constants(graph: Graph, repeated: Mapping[Value, Along]) -> Graph | None:
    found = follow_batch(graph, repeated)
    if found is None or found.mixed:
        return None
    batches, now = found.batches, found.now
    if any(batches.get(v) != Along(0) or now[v].shape[0] != 1 for v in graph.outputs):
        return None
    leaves, outputs = (tuple(now.get(v, v) for v in part) for part in (graph.leaves, graph.outputs))
    once = {v.name: graph.data[v.name].take([0], batch.axis) for v, batch in repeated.items()}
    data = {**graph.data, **once}
    made = replace(graph, leaves=leaves, nodes=found.nodes, outputs=outputs, data=data)
    verify(made)
    return made


@dataclass(frozen=True)
class Followed:
    """Where the batch is in the values of a graph, and the graph's nodes for one sample."""

    batches: Mapping[Value, Along]
    now: Mapping[Value, Value]  # values for one sample, by those for the batch
    nodes: tuple[Node, ...]
    mixed: frozenset[Value]  # they depend on the batch in some other way

    def in_rows(self, value: Value) -> bool:
        """Whether the value has the samples one behind the other."""
        batch = self.batches.get(value)
        return batch is not None and prod(value.shape[: batch.axis]) * batch.outer == 1


def follow_batch(graph: Graph, repeated: Mapping[Value, Along]) -> Followed | None:
    """Follow the batch from the inputs on; None if they have none, or one of one sample."""
    size, inputs = batch_size(graph), graph.leaves_of(Role.INPUT)
    if size is None or size == 1:
        return None
    batches = {v: Along(0) for v in inputs} | dict(repeated)
    fewer = Fewer(size)
    now = {v: replace(v, type=resized(v.type, batch.axis, 1)) for v, batch in batches.items()}
    uses, nodes, mixed = Uses(graph), [], set[Value]()
    for node in graph.nodes:
        if not mixed.isdisjoint(node.ins):
            mixed.update(node.outs)
            continue
        ins = tuple(now.get(v, v) for v in node.ins)
        again = replace(node, ins=ins, attrs=fewer.attributes(node, batches))
        if again.ins == node.ins and again.attrs == node.attrs:
            nodes.append(node)
            continue
        try:
            outs = tuple(replace(v, type=t) for v, t in zip(node.outs, again.inferred, strict=True))
        except ShapeError:
            mixed.update(node.outs)
            continue
        found = {
            old: fewer.found(node, old, new, batches)
            for old, new in zip(node.outs, outs, strict=True)
        }
        if any(b is None and (v in uses.readers or v in uses.kept) for v, b in found.items()):
            mixed.update(node.outs)
            continue
        batches.update((v, batch) for v, batch in found.items() if batch is not None)
        now.update(zip(node.outs, outs, strict=True))
        nodes.append(replace(again, outs=outs))
    return Followed(batches, now, tuple(nodes), frozenset(mixed))
