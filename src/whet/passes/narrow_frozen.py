"""Store frozen weights in fewer bits, and make each where a layer reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from ..ir import Array, Builder, DType, Graph, Link, Node, Op, Relation, Role, Value
from ..memory.plan import LINE, aligned, lifetimes
from ..memory.plan import lives as lives_of
from ..ops._common import pack
from ..ops.fused import LinearFused
from ..ops.linear import LinearDx
from ..ops.lookup import LinearShared, LinearSharedDx, Lookup, LookupScaled
from ..ops.unary import Clamp
from ..ops.widen import Widen, narrowed

LEAST = 256  # elements; below that the code costs more than it saves
CODE = 64  # bytes that a call and its arguments take, roughly


@dataclass(frozen=True)
class Stored:
    """Arrays, each with the end of its name, and the operator that makes the weight of them."""

    op: type[Op]
    arrays: tuple[tuple[str, Array, DType], ...]
    attrs: Mapping[str, Any]


class Form(Protocol):
    """A form in which weights are stored."""

    dtypes: ClassVar[tuple[DType, ...]]  # of weights that it is for

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        """The weight in this form, if that has its numbers and is smaller."""


@dataclass(frozen=True)
class Bytes:
    """8 bits, and a scale for each output channel."""

    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32,)

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        last = is_depthwise(leaf)
        found = narrowed(weight, last)
        if found is None:
            return None
        arrays = (("narrow", found[0], DType.I8), ("scale", found[1], DType.F32))
        return Stored(Widen, arrays, {"last": last})


@dataclass(frozen=True)
class Codebooks:
    """A codebook, indices of so many bits, and a scale for each channel if a norm was folded in."""

    bits: int
    parameters: Mapping[str, Array] = field(default_factory=dict)  # before norms were folded in

    dtypes: ClassVar[tuple[DType, ...]] = (DType.F32, DType.I8)

    def stored(self, leaf: Value, weight: Array) -> Stored | None:
        attrs: dict[str, Any] = {"shape": weight.shape, "bits": self.bits}
        book, index = np.unique(weight, return_inverse=True)
        if len(book) <= 2**self.bits:
            kind, scale = leaf.type.dtype, None
        else:
            kind, scale = DType.F32, self.scale(leaf, weight)
            if scale is None:
                return None
            book, index = np.unique(self.before(leaf, weight), return_inverse=True)
            attrs["last"] = is_depthwise(leaf)
        arrays: list[tuple[str, Array, DType]] = [
            ("book", book, kind), ("index", pack(index, self.bits), DType.U8)
        ]  # fmt: skip
        if scale is not None:
            arrays.append(("scale", scale, DType.F32))
        size = sum(a.size * dtype.size for _, a, dtype in arrays)
        if size + CODE > leaf.type.bytes:
            return None
        return Stored(Lookup if scale is None else LookupScaled, tuple(arrays), attrs)

    def before(self, leaf: Value, weight: Array) -> Array:
        """The parameter that the weight was made from, 0 where that is."""
        return np.where(weight == 0, 0, self.parameters[parameter_of(leaf)].reshape(weight.shape))

    def scale(self, leaf: Value, weight: Array) -> Array | None:
        """What each channel was multiplied by, if it is that and the parameter has few values."""
        given = self.parameters.get(parameter_of(leaf))
        if given is None or given.size != weight.size:
            return None
        before = self.before(leaf, weight).astype(np.float64)
        if len(np.unique(before)) > 2**self.bits or not np.all(np.isfinite(weight)):
            return None
        axes = tuple(range(weight.ndim - 1) if is_depthwise(leaf) else range(1, weight.ndim))
        square = (before * before).sum(axis=axes, keepdims=True)
        scale = (before * weight).sum(axis=axes, keepdims=True) / np.where(square > 0, square, 1)
        scale = scale.astype(np.float32)
        apart = np.abs(before * scale - weight)
        largest = np.abs(weight).max(axis=axes, keepdims=True)
        return scale.ravel() if np.all(apart <= 1e-6 * largest) else None


def narrow_frozen(
    entries: Mapping[str, Graph], form: Form, inplace: bool, inside: bool
) -> dict[str, Graph]:
    """Weights that have the form, to the last digit.

    A weight is made in the arena that all entry points share, which does not grow. What finds no
    room at some reader, in any of them, is read as it is stored if it can be, by linear layers, and
    else stays as it was. Arguments are those of the plan.
    """
    trained = {leaf.name for leaf, _ in entries["train_step"].state}
    lives = {name: lifetimes(graph, inplace, inside) for name, graph in entries.items()}
    arena = max(own.peak[0] for own in lives.values())
    parts = {name: narrow_parts(graph, form, trained) for name, graph in entries.items()}
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
    direct = wide - {
        leaf.name
        for name, graph in entries.items()
        for node in graph.nodes
        for leaf in node.ins
        if leaf.name in wide and not reads_indices(node, leaf, parts[name])
    }
    return {name: narrow(graph, parts[name], wide, direct) for name, graph in entries.items()}


def reads_indices(node: Node, leaf: Value, parts: Mapping[str, Stored]) -> bool:
    """Whether there is a form of this layer that reads the codebook and the indices."""
    plain = node.op is not LinearFused or not node.attrs.add
    weight = node.op.indexed and node.ins[1] is leaf and node.ins.count(leaf) == 1
    return weight and plain and leaf.name in parts and parts[leaf.name].op is Lookup


def with_indices(b: Builder, node: Node, stored: Sequence[Value], bits: int) -> None:
    """Emit that form; its result is that of the layer."""
    x, weight, *bias = node.ins
    if node.op is LinearDx:
        b.emit(LinearSharedDx, x, *stored, name=node.out.name, inputs=weight.shape[1], bits=bits)
    else:
        sizes = {"outputs": weight.shape[0], "bits": bits}
        y = b.emit(LinearShared, x, *stored, *bias, name=node.out.name, **sizes)
        if node.op is LinearFused and node.attrs.clamps:
            b.emit(Clamp, y, name=node.out.name, low=node.attrs.low, high=node.attrs.high)
    b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)


def narrow_parts(graph: Graph, form: Form, trained: Collection[str]) -> dict[str, Stored]:
    """What is stored of every frozen weight that has the form, by its name."""
    leaves = {v for node in graph.nodes for v in node.ins if is_frozen(v, form.dtypes, trained)}
    found = {leaf: form.stored(leaf, graph.data[leaf.name]) for leaf in leaves}
    return {leaf.name: parts for leaf, parts in found.items() if parts is not None}


def narrow(
    graph: Graph, parts: Mapping[str, Stored], wide: Collection[str], direct: Collection[str]
) -> Graph:
    """The graph with its frozen weights in the form, but for those that stay `wide`.

    Of these, layers read `direct` ones as they are stored.
    """
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    made: dict[str, list[Value]] = {}

    def stored(leaf: Value) -> list[Value]:
        if leaf.name not in made:
            link = Link(Relation.STORED, parameter_of(leaf))
            made[leaf.name] = [
                b.const(array, f"{leaf.name}.{end}", dtype, link)
                for end, array, dtype in parts[leaf.name].arrays
            ]
        return made[leaf.name]

    for node in graph.nodes:
        ins = list(node.ins)
        b.loc = node.loc
        for i, leaf in enumerate(node.ins):
            if leaf.name in parts and leaf.name not in wide:
                own = parts[leaf.name]
                ins[i] = b.emit(own.op, *stored(leaf), name=f"{leaf.name}.wide", **own.attrs)
        leaves = [leaf for leaf in node.ins if leaf.name in direct]
        if leaves:
            with_indices(b, node, stored(leaves[0]), parts[leaves[0].name].attrs["bits"])
        else:
            b.nodes.append(replace(node, ins=tuple(ins)))
    return b.finish(graph.outputs)


def narrow_weights(entries: Mapping[str, Graph]) -> dict[str, int]:
    """Parameters that are stored in such a form, and the bytes that this takes."""
    found: dict[str, dict[str, int]] = {}
    for graph in entries.values():
        for leaf in graph.leaves_of(Role.CONST):
            if leaf.link and leaf.is_a(Relation.STORED):
                found.setdefault(leaf.link.of, {})[leaf.name] = leaf.type.bytes
    return {name: sum(own.values()) for name, own in found.items()}


def wide_weights(entries: Mapping[str, Graph]) -> dict[str, int]:
    """Frozen weights that layers read as they are stored, and their bytes."""
    trained = {leaf.name for leaf, _ in entries["train_step"].state}
    nodes = (node for graph in entries.values() for node in graph.nodes)
    layers = (node for node in nodes if node.op.layer is not None or node.op.reads_weights)
    weights = (v for node in layers for v in node.ins if is_frozen(v, Codebooks.dtypes, trained))
    return {leaf.name: leaf.type.bytes for leaf in weights}


def is_frozen(leaf: Value, dtypes: tuple[DType, ...], trained: Collection[str]) -> bool:
    weight = leaf.role in (Role.CONST, Role.PARAM) and leaf.type.rank >= 2
    large = leaf.type.dtype in dtypes and leaf.type.elements >= LEAST
    return weight and large and leaf.name not in trained


def parameter_of(leaf: Value) -> str:
    """The name of the parameter that a frozen weight is, or was made from."""
    return leaf.link.of if leaf.link and leaf.is_a(Relation.MADE_FROM) else leaf.name


def is_depthwise(leaf: Value) -> bool:
    """Whose channels are the last axis."""
    return leaf.type.rank == 3
