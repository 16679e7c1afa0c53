"""Round frozen weights to what the form that they are stored in can hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import SchemeError, option
from ..frontend.model import Imported, Model
from ..ir import Array, DType, Graph, Node, Part, Role, Value
from ..ops._blocks import BLOCKS, decoded, encoded, in_blocks
from ..ops.shape import Reshape, Transpose
from ..ops.stored import ReadsStored
from ..ops.widen import narrowed, some_rows
from ..passes.frozen_forms import codebook_bits
from ..passes.narrow_frozen import LEAST
from ..passes.rewriting import Uses
from .codebook import few_values, importance

Rounding = Callable[["Weight", Array, Array], Array]  # of a parameter, where that is frozen


@dataclass(frozen=True)
class Weight:
    """A parameter, and the weight of some layer that is a view of it."""

    leaf: Value
    views: tuple[Node, ...]  # from the parameter to the weight
    axis: int  # of the weight: its output channels, or the rows of an embedding

    def seen(self, array: Array) -> Array:
        for node in self.views:
            array = np.asarray(node.op.ref(node.attrs, array))
        return array

    def parameter(self, array: Array) -> Array:
        """The parameter with such a weight."""
        for node in reversed(self.views):
            if node.op is Transpose:
                array = array.transpose(np.argsort(node.attrs.perm))
            array = array.reshape(node.ins[0].shape)
        return array


def round_weights(
    model: Model,
    trained: Collection[str],
    parts: Mapping[str, Part],
    frozen: str,
    leave: Collection[str] = (),
) -> tuple[Model, dict[str, float]]:
    """The model with each frozen weight as this form of storing has it, but those to leave.

    Also the error of every weight that changed: the norm of the change by its own. Of `trained`
    parameters, only what is not in their `parts` changes.
    """
    graph = model.training.graph
    rounded = rounding(frozen, model)
    split = {part.parameter: part for part in parts.values() if part.rests}
    found: dict[str, Array] = {}
    errors: dict[str, float] = {}
    for weight in weights_of(graph, floats_only=not codebook_bits(frozen)):
        leaf = weight.leaf
        whole = leaf.name in trained and leaf.name not in split
        if leaf.type.elements < LEAST or whole or leaf.name in leave:
            continue
        data = graph.data[leaf.name]
        fixed = np.ones(data.shape, bool)
        if leaf.name in split:
            fixed = split[leaf.name].fixed(fixed)
        now = rounded(weight, data, fixed)
        if not np.array_equal(now, data):
            found[leaf.name] = now
            errors[leaf.name] = distance(now, data)
    return with_data(model, found), errors


def rounding(frozen: str, model: Model) -> Rounding:
    """How weights are rounded for this word for `frozen=`."""
    if bits := codebook_bits(frozen):
        graph, units = model.training.graph, model.rules.integer_rules

        def shared(weight: Weight, data: Array, fixed: Array) -> Array:
            return few_values(data, fixed, bits, importance(graph, units, weight.leaf))

        return shared

    def rounded(weight: Weight, data: Array, fixed: Array) -> Array:
        require_finite(weight.leaf, data, frozen)
        if fixed.all():
            return weight.parameter(nearest_in(frozen, weight.seen(data), weight.axis))
        stored = weight.seen(np.where(fixed, data, np.float32(0)))
        now = nearest_in(frozen, stored, weight.axis)
        if now[~weight.seen(fixed)].any():  # what trains must stay 0 in what does not
            now = by_rows(stored, weight.axis)
        return np.where(fixed, weight.parameter(now), data)

    return rounded


def nearest_in(frozen: str, weight: Array, axis: int) -> Array:
    """The weight in this format; by rows of 8 bits if that cannot hold it."""
    if frozen in BLOCKS and axis == 0 and in_blocks(weight):
        data = encoded(frozen, weight)
        if data is not None:
            return decoded(frozen, data, weight.shape)
    return by_rows(weight, axis)


def by_rows(weight: Array, axis: int) -> Array:
    """8 bits and a scale for each channel; as it is if it is made of that.

    A scale has so few bits that its products with 8 bits are exact: what is rounded is rounded to
    the same numbers again.
    """
    if narrowed(weight, last=axis != 0) is not None:
        return weight
    axes = tuple(i for i in range(weight.ndim) if i != axis % weight.ndim)
    most = np.maximum(weight.max(axis=axes, keepdims=True), -weight.min(axis=axes, keepdims=True))
    scale = np.broadcast_to(few_bits(most / np.float32(127)), weight.shape)
    rounded: Array = np.zeros_like(weight)
    for rows in some_rows(weight):
        by, part = scale[rows], rounded[rows]
        np.divide(weight[rows], by, out=part, where=by > 0)
        part[...] = np.clip(np.rint(part), -127, 127) * by
    return rounded


def few_bits(x: Array) -> Array:
    """The nearest numbers whose significands have 17 bits."""
    significand, exponent = np.frexp(x.astype(np.float32))
    found: Array = np.ldexp(np.rint(significand * 2**17) / np.float32(2**17), exponent)
    return found.astype(np.float32)


def require_finite(leaf: Value, data: Array, frozen: str) -> None:
    if np.all(np.isfinite(data)):
        return
    count = int(data.size - np.isfinite(data).sum())
    raise SchemeError(
        f"{leaf.name} cannot be stored in fewer bits",
        why=f"{count:,} of its elements are infinite or not a number",
        try_=f"weights that are finite, or no {option('frozen', frozen)}",
    )


def distance(now: Array, data: Array) -> float:
    """The norm of the change by that of the weight, a part at a time."""
    change = norm = 0.0
    flat, other = data.reshape(-1), now.reshape(-1)
    for first in range(0, flat.size, 1 << 20):
        part = flat[first : first + (1 << 20)].astype(np.float64)
        apart = other[first : first + (1 << 20)] - part
        change, norm = change + float(apart @ apart), norm + float(part @ part)
    return float(np.sqrt(change / norm))


def weights_of(graph: Graph, floats_only: bool = False) -> list[Weight]:
    """The parameters that are the weight of a layer, or that one is a view of.

    With `floats_only`, those of floats, and embeddings too.
    """
    uses = Uses(graph)
    found: dict[str, Weight] = {}
    kinds = (DType.F32,) if floats_only else (DType.F32, DType.I8)
    for node in graph.nodes:
        for value, axis in weights_read(node, floats_only):
            views: list[Node] = []
            while (maker := uses.producer.get(value)) is not None and is_view(maker):
                views.insert(0, maker)
                value = maker.ins[0]
            if value.role is Role.PARAM and value.type.dtype in kinds:
                found.setdefault(value.name, Weight(value, tuple(views), axis))
    return list(found.values())


def weights_read(node: Node, embeddings: bool) -> Sequence[tuple[Value, int]]:
    """Operands that are weights, each with the axis of its output channels."""
    if (layer := node.op.layer) is not None:
        return [(node.ins[layer.weight], layer.outputs)]
    form = node.op.stored
    if not embeddings or form is None or not issubclass(form, ReadsStored):
        return []
    weight = node.ins[form.weight]
    return [(weight, 0)] if ReadsStored.of(node, weight) is not None else []


def is_view(node: Node) -> bool:
    return node.op is Reshape or (node.op is Transpose and node.ins[0].type.rank == 2)


def with_data(model: Model, found: Mapping[str, Array]) -> Model:
    """The model with other numbers in some parameters."""
    if not found:
        return model

    def changed(part: Imported) -> Imported:
        own = {name: found.get(name, data) for name, data in part.graph.data.items()}
        return replace(part, graph=replace(part.graph, data=own))

    return replace(model, training=changed(model.training), prediction=changed(model.prediction))
