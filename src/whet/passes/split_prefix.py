"""Split a training step behind its frozen beginning, whose results can be kept for every sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import SchemeError
from ..ir import Graph, Node, Role, Value, prune, verify
from ..names import quoted
from .one_sample import batch_size, follow_batch, repeated_constants

LEFT = 0.05  # of the work of the beginning, that a step may do again if less is kept then
SAVED = 0.05  # of the work of a step, from which on it is worthwhile
LEAST = 0.5  # of the work of frozen layers that has to be in the beginning
PREFIX, KEPT = "prefix", "_kept"
STEPS = ("train_step", "gradients")


def split_prefix(entries: Mapping[str, Graph]) -> dict[str, Graph]:
    """The entry points, `prefix`, and for each that trains one that begins with its results.

    This comes after all other passes: both halves are nodes of the step itself, with its kernels,
    and so have its bits.
    """
    steps = {name: entries[name] for name in STEPS if name in entries}
    begin = Beginning.of(steps["train_step"])
    cut = begin.cut(list(steps.values()))
    added = {name + KEPT: rest for name, rest in zip(steps, cut.rests, strict=True)}
    if "gradients" in steps:
        steps["gradients"] = joined(cut.prefix, added["gradients" + KEPT], "gradients")
    return {**entries, **steps, PREFIX: cut.prefix, **added}


@dataclass(frozen=True)
class Split:
    """A beginning, and what follows on it in each step."""

    prefix: Graph
    rests: list[Graph]

    @property
    def bytes(self) -> int:
        return sum(v.type.bytes for v in self.prefix.outputs)


@dataclass(frozen=True)
class Beginning:
    """The nodes of a training step that depend on the sample, and on nothing else that changes."""

    graph: Graph
    nodes: tuple[Node, ...]
    rows: Collection[Value]  # the values of theirs that have the samples one behind the other

    @classmethod
    def of(cls, graph: Graph) -> Beginning:
        """Refuse a step whose frozen layers do not begin it, or are not functions of a sample."""
        updated = {leaf for leaf, _ in graph.state if leaf.role is Role.PARAM}
        frozen = fed(graph, {*updated, *graph.leaves_of(Role.LABEL, Role.SCALAR)})
        steady = fed(graph, {*updated, *graph.leaves_of(Role.LABEL, Role.SCALAR, Role.STATE)})
        nodes, rows = by_samples(graph, steady)
        if work(frozen) < SAVED * work(graph.nodes):
            raise nothing_frozen(graph, updated)
        if work(nodes) < LEAST * work(frozen):
            known = set(nodes)
            raise unsteady(next(node for node in frozen if node not in known))
        return cls(graph, tuple(nodes), rows)

    def cut(self, steps: Sequence[Graph]) -> Split:
        """With as few bytes to keep as possible, and nearly all of the work before them."""
        total = work(self.nodes)
        best: Split | None = None
        done = 0
        for i, node in enumerate(self.nodes):
            done += node.op.macs(node)
            if done < (1 - LEFT) * total:
                continue
            values = self.read_behind(self.nodes[: i + 1])
            size = sum(v.type.bytes for v in values)
            if not all(v in self.rows for v in values) or (best and size > best.bytes):
                continue
            rests = [rest for graph in steps if (rest := after(graph, values)) is not None]
            if len(rests) == len(steps):
                best = Split(before(self.graph, values), rests)
        if best is None:
            raise SchemeError(
                "cache_prefix: what the frozen layers compute cannot be kept sample by sample",
                why="in no array between them are the samples one behind the other",
                try_="a batch of one sample, or no accumulate=True",
            )
        return best

    def read_behind(self, nodes: Collection[Node]) -> list[Value]:
        """Inputs and results of these nodes that other nodes read."""
        done = set(nodes)
        made = {*self.graph.leaves_of(Role.INPUT), *(v for node in done for v in node.outs)}
        later = [v for node in self.graph.nodes if node not in done for v in node.ins]
        ends = (*self.graph.outputs, *(v for _, v in self.graph.state))
        return [v for v in dict.fromkeys((*later, *ends)) if v in made]


def fed(graph: Graph, changing: set[Value]) -> list[Node]:
    """Nodes that depend on inputs, and not on what is changing."""
    changing, given, nodes = set(changing), set(graph.leaves_of(Role.INPUT)), []
    for node in graph.nodes:
        if not changing.isdisjoint(node.ins):
            changing.update(node.outs)
        elif not given.isdisjoint(node.ins):
            given.update(node.outs)
            nodes.append(node)
    return nodes


def work(nodes: Collection[Node]) -> int:
    return sum(node.op.macs(node) for node in nodes)


def by_samples(graph: Graph, nodes: Collection[Node]) -> tuple[list[Node], set[Value]]:
    """The nodes in which no sample affects another one of its batch, and those of their values
    that have the samples one behind the other."""
    inputs = graph.leaves_of(Role.INPUT)
    values = {*inputs, *(v for node in nodes for v in node.outs)}
    if batch_size(graph) == 1:
        return list(nodes), values
    part = prune(replace(graph, outputs=tuple(values), state=()))
    best: tuple[list[Node], set[Value]] = [], set()
    for constants in ({}, repeated_constants(part)):
        found = follow_batch(part, constants)
        if found is None:
            raise SchemeError(
                "cache_prefix: the inputs are not a batch of samples",
                why=f"they have shapes {', '.join(str(v.type) for v in inputs)}",
                try_="inputs with the samples along their first axes",
            )
        alone = [n for n in nodes if all(v in found.batches for v in n.outs)]
        if len(alone) > len(best[0]):
            best = alone, {v for v in values if found.in_rows(v)}
    return best


def before(graph: Graph, values: Collection[Value]) -> Graph:
    """The entry point that computes these values."""
    leaves = tuple(v for v in graph.leaves if v.role not in (Role.LABEL, Role.SCALAR))
    part = prune(replace(graph, name=PREFIX, leaves=leaves, outputs=tuple(values), state=()))
    verify(part)
    return part


def after(graph: Graph, values: Collection[Value]) -> Graph | None:
    """The entry point that takes these values in place of the inputs; None if it needs others."""
    now = {v.name: replace(v, role=Role.INPUT) for v in values}
    part = replace(
        graph,
        name=graph.name + KEPT,
        leaves=(*now.values(), *(v for v in graph.leaves if v.name not in now)),
        nodes=tuple(replace(n, ins=tuple(now.get(v.name, v) for v in n.ins)) for n in graph.nodes),
        outputs=tuple(now.get(v.name, v) for v in graph.outputs),
        state=tuple((leaf, now.get(v.name, v)) for leaf, v in graph.state),
    )
    part = prune(part)
    read = {v for n in part.nodes for v in n.ins} | {v for _, v in part.state}
    inputs = set(part.leaves_of(Role.INPUT))
    if inputs & read != set(now.values()):
        return None
    part = replace(part, leaves=tuple(v for v in part.leaves if v in read or v not in inputs))
    verify(part)
    return part


def joined(prefix: Graph, rest: Graph, name: str) -> Graph:
    """A step that begins as another one does: with its kernels, and so with its bits."""
    data, taken = dict(rest.data), {v.name: v for v in rest.leaves if v.role is not Role.INPUT}
    now: dict[Value, Value] = {}
    for leaf in prefix.leaves:
        same = taken.get(leaf.name)
        if leaf.role is Role.CONST and same and not same_data(leaf, prefix, same, rest):
            now[leaf] = replace(leaf, name=f"{leaf.name}.prefix")
        elif same:
            now[leaf] = same
        own = now.get(leaf, leaf)
        taken[own.name] = own
        if leaf.name in prefix.data:
            data[own.name] = prefix.data[leaf.name]
    nodes = [replace(n, ins=tuple(now.get(v, v) for v in n.ins)) for n in prefix.nodes]
    made = {v.name: v for n in nodes for v in n.outs} | {v.name: v for v in taken.values()}
    for node in rest.nodes:
        if node.out.name not in made:  # else a weight that both make of what is stored of it
            nodes.append(replace(node, ins=tuple(made.get(v.name, v) for v in node.ins)))
    state = tuple((made.get(leaf.name, leaf), made.get(v.name, v)) for leaf, v in rest.state)
    outputs = tuple(made.get(v.name, v) for v in rest.outputs)
    whole = prune(Graph(name, tuple(taken.values()), tuple(nodes), outputs, state, data))
    verify(whole)
    return whole


def same_data(one: Value, its: Graph, other: Value, others: Graph) -> bool:
    pair = its.data[one.name], others.data[other.name]
    return one.type == other.type and np.array_equal(*pair)


def nothing_frozen(graph: Graph, updated: set[Value]) -> SchemeError:
    first = next(node for node in graph.nodes if not updated.isdisjoint(node.ins))
    trained = next(v for v in first.ins if v in updated)
    return SchemeError(
        "cache_prefix: no layer at the beginning is frozen, or next to none",
        at=quoted(first.loc.module),
        why=f"{quoted(trained.name)} trains",
        try_="a scheme that trains later layers, or no cache_prefix",
    )


def unsteady(node: Node) -> SchemeError:
    """The frozen node is the first that is not a function of a sample."""
    drawn = any(v.role is Role.STATE for v in node.ins)
    why = "changes from step to step, as dropout does" if drawn else "mixes the samples of a batch"
    return SchemeError(
        "cache_prefix: the frozen layers are not a function of the sample alone",
        at=quoted(node.loc.module),
        why=f"{node.op.name} {why}",
        try_="model.eval() before compiling: then batch norm and dropout do nothing of the kind",
    )
