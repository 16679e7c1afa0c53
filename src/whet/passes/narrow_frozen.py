"""Store frozen weights in 8 bits, and widen each where a layer reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..ir import Array, Builder, DType, Graph, Role, Value
from ..memory.plan import LINE, aligned, lifetimes
from ..memory.plan import lives as lives_of
from ..ops.widen import Widen, narrowed

Parts = tuple[Array, Array]  # integers and scales
LEAST = 256  # elements; below that the code costs more than it saves


def narrow_frozen(entries: Mapping[str, Graph], inplace: bool, inside: bool) -> dict[str, Graph]:
    """Weights that 8 bits and a scale for each output channel make up, to the last digit of f32.

    A weight is widened in the arena that all entry points share, which does not grow: what finds no
    room at some reader, in any of them, stays as it is. Arguments are those of the plan.
    """
    trained = {leaf.name for leaf, _ in entries["train_step"].state}
    lives = {name: lifetimes(graph, inplace, inside) for name, graph in entries.items()}
    arena = max(own.peak[0] for own in lives.values())
    parts = {name: narrow_parts(graph, trained) for name, graph in entries.items()}
    wide: set[str] = set()
    for name, graph in entries.items():
        loads = lives_of(lives[name].buffers).loads
        for i, node in enumerate(graph.nodes):
            room = arena - (int(loads[i]) if i < len(loads) else 0)
            for leaf in (leaf for leaf in node.ins if leaf.name in parts[name]):
                room -= aligned(leaf.type.bytes, LINE)  # all of a node's are there at once
                widened = node.op.reads_weights or node.op.layer is not None
                if not widened or room < 0:
                    wide.add(leaf.name)
                    room += aligned(leaf.type.bytes, LINE)
    return {name: narrow(graph, parts[name], wide) for name, graph in entries.items()}


def narrow_parts(graph: Graph, trained: Collection[str]) -> dict[str, Parts]:
    """Integers and scales of every frozen weight that has them, by its name."""
    leaves = {leaf for node in graph.nodes for leaf in node.ins if is_frozen(leaf, trained)}
    found = {leaf: narrowed(graph.data[leaf.name], is_depthwise(leaf)) for leaf in leaves}
    return {leaf.name: parts for leaf, parts in found.items() if parts is not None}


def narrow(graph: Graph, parts: Mapping[str, Parts], wide: Collection[str]) -> Graph:
    """The graph with all frozen weights in 8 bits that are not to stay `wide`."""
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    stored: dict[str, tuple[Value, Value]] = {}
    for node in graph.nodes:
        ins = list(node.ins)
        for i, leaf in enumerate(node.ins):
            if leaf.name in wide or leaf.name not in parts:
                continue
            if leaf.name not in stored:
                integers, scale = parts[leaf.name]
                stored[leaf.name] = (
                    b.const(integers, f"{leaf.name}.narrow", DType.I8),
                    b.const(scale, f"{leaf.name}.scale"),
                )
            b.loc = node.loc
            name, last = f"{leaf.name}.wide", is_depthwise(leaf)
            ins[i] = b.emit(Widen, *stored[leaf.name], name=name, last=last)
        b.nodes.append(replace(node, ins=tuple(ins)))
    return b.finish(graph.outputs)


def is_frozen(leaf: Value, trained: Collection[str]) -> bool:
    weight = leaf.role in (Role.CONST, Role.PARAM) and leaf.type.rank >= 2
    large = leaf.type.dtype is DType.F32 and leaf.type.elements >= LEAST
    return weight and large and leaf.name not in trained


def is_depthwise(leaf: Value) -> bool:
    """Whose channels are the last axis."""
    return leaf.type.rank == 3
