"""Store frozen weights in fewer bits; layers read them so, or each is made right before one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..ir import Array, Builder, DType, Graph, Link, Node, Relation, Role, Type, Value
from ..memory.plan import LINE, aligned, lifetimes
from ..memory.plan import lives as lives_of
from ..ops.stored import ReadsStored
from .frozen_forms import Codebooks, Form, Stored, parameter_of

LEAST = 256  # elements; below that the code costs more than it saves

Parts = Mapping[str, Stored]  # by the name of the weight


def narrow_frozen(
    entries: Mapping[str, Graph], form: Form, inplace: bool, inside: bool
) -> dict[str, Graph]:
    """Weights that have the form, to the last digit.

    A layer reads its weight as it is stored if it can. Elsewhere the weight is made in the arena
    that all entry points share, which does not grow: what finds no room at some reader, in any of
    them, stays as it was. Arguments are those of the plan.
    """
    trained = {leaf.name for leaf, _ in entries["train_step"].state}
    lives = {name: lifetimes(graph, inplace, inside) for name, graph in entries.items()}
    arena = max(own.peak[0] for own in lives.values())
    known: dict[tuple[str, int], Stored | None] = {}
    parts = {name: parts_of(graph, form, trained, known) for name, graph in entries.items()}
    wide: set[str] = set()
    for name, graph in entries.items():
        loads = lives_of(lives[name].buffers).loads
        for i, node in enumerate(graph.nodes):
            room = arena - (int(loads[i]) if i < len(loads) else 0)
            for leaf in (leaf for leaf in node.ins if leaf.name in parts[name]):
                own = parts[name][leaf.name]
                if reader_of(node, leaf, own) is not None:
                    continue
                room -= aligned(leaf.type.bytes, LINE)  # all of a node's are there at once
                if not can_be_made(node, own) or room < 0:
                    wide.add(leaf.name)
                    room += aligned(leaf.type.bytes, LINE)
    return {name: narrow(graph, parts[name], wide) for name, graph in entries.items()}


def reader_of(node: Node, leaf: Value, stored: Stored) -> type[ReadsStored] | None:
    """The operator that does what the node does with the weight as it is stored."""
    return ReadsStored.of(node, leaf) if stored.kind else None


def can_be_made(node: Node, stored: Stored) -> bool:
    """Whether the weight can be made for this node."""
    return stored.widen is not None and (node.op.reads_weights or node.op.layer is not None)


def parts_of(
    graph: Graph,
    form: Form,
    trained: Collection[str],
    known: dict[tuple[str, int], Stored | None],
) -> dict[str, Stored]:
    """What is stored of every frozen weight that has the form, by its name.

    `known` is that of the arrays of other entry points, which mostly are the same ones.
    """
    leaves = {v for node in graph.nodes for v in node.ins if is_frozen(v, form.dtypes, trained)}
    found = {}
    for leaf in leaves:
        array = graph.data[leaf.name]
        key = leaf.name, id(array)
        if key not in known:
            known[key] = form.stored(leaf, array)
        if (own := known[key]) is not None:
            found[leaf.name] = own
    return found


def narrow(graph: Graph, parts: Parts, wide: Collection[str]) -> Graph:
    """The graph with its frozen weights in the form, but for those that stay `wide`."""
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    made: dict[str, list[Value]] = {}

    def arrays(leaf: Value) -> list[Value]:
        if leaf.name not in made:
            link = Link(Relation.STORED, parameter_of(leaf))
            made[leaf.name] = [
                constant(b, f"{leaf.name}.{end}", array, dtype, link)
                for end, array, dtype in parts[leaf.name].arrays
            ]
        return made[leaf.name]

    for node in graph.nodes:
        b.loc = node.loc
        leaves = [leaf for leaf in node.ins if leaf.name in parts and leaf.name not in wide]
        readers = {leaf: reader_of(node, leaf, parts[leaf.name]) for leaf in leaves}
        made_wide = {
            leaf: parts[leaf.name].emit_wide(b, arrays(leaf), f"{leaf.name}.wide")
            for leaf in leaves
            if readers[leaf] is None
        }
        node = replace(node, ins=tuple(made_wide.get(leaf, leaf) for leaf in node.ins))
        b.nodes.append(node)
        for leaf, reader in readers.items():  # one, if any: the weight of a layer
            if reader is not None:
                b.nodes.pop()
                own = parts[leaf.name]
                reader.emit(b, node, arrays(leaf), own.kind, own.bits)
                b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)
    return b.finish(graph.outputs)


def constant(b: Builder, name: str, array: Array, dtype: DType, link: Link) -> Value:
    return b.leaf(name, Type(dtype, array.shape), Role.CONST, array, link)


def narrow_weights(entries: Mapping[str, Graph]) -> dict[str, dict[str, int]]:
    """Parameters that are stored in such a form, and the bytes of each array that is of theirs."""
    found: dict[str, dict[str, int]] = {}
    for graph in entries.values():
        for leaf in graph.leaves_of(Role.CONST):
            if leaf.link and leaf.is_a(Relation.STORED):
                found.setdefault(leaf.link.of, {})[leaf.name] = leaf.type.bytes
    return found


def bytes_by_form(entries: Mapping[str, Graph]) -> dict[str, int]:
    """The bytes of all of them in each form: int8, codebook, or a format of GGUF."""
    found: dict[str, int] = {}
    for arrays in narrow_weights(entries).values():
        ends = {name.rpartition(".")[2] for name in arrays}
        form = "codebook" if "index" in ends else "int8" if "narrow" in ends else min(ends)
        found[form] = found.get(form, 0) + sum(arrays.values())
    return dict(sorted(found.items()))


def wide_weights(entries: Mapping[str, Graph]) -> dict[str, int]:
    """Frozen weights that layers read as they are, and their bytes."""
    trained = {leaf.name for leaf, _ in entries["train_step"].state}
    nodes = [node for graph in entries.values() for node in graph.nodes]
    reads = [(n, v) for n in nodes for v in n.ins if is_frozen(v, Codebooks.dtypes, trained)]
    return {leaf.name: leaf.type.bytes for node, leaf in reads if is_weight(node, leaf)}


def is_weight(node: Node, leaf: Value) -> bool:
    layer = node.op.layer is not None or node.op.reads_weights
    return layer or ReadsStored.of(node, leaf) is not None


def is_frozen(leaf: Value, dtypes: tuple[DType, ...], trained: Collection[str]) -> bool:
    weight = leaf.role in (Role.CONST, Role.PARAM) and leaf.type.rank >= 2
    large = leaf.type.dtype in dtypes and leaf.type.elements >= LEAST
    return weight and large and leaf.name not in trained
