"""K-means: frozen weights that take few values, by a codebook for each layer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ..frontend.model import Imported, Model
from ..ir import Array, DType, Graph, Node, Part, Role, Value
from ..ops.shape import Reshape
from ..passes.narrow_frozen import LEAST
from ..passes.rewriting import Uses
from ..training import IntegerRules

ROUNDS = 300


def share_weights(
    model: Model,
    trained: Collection[str],
    parts: Mapping[str, Part],
    bits: int,
    leave: Collection[str] = (),
) -> tuple[Model, dict[str, float]]:
    """The model with 2^bits values or fewer in each frozen weight of a layer, but those to leave.

    Also the error of every weight that changed: the norm of the change by its own. Of `trained`
    parameters, only what is not in their `parts` changes.
    """
    graph, units = model.training.graph, model.rules.integer_rules
    split = {part.parameter: part for part in parts.values() if part.rests}
    found: dict[str, Array] = {}
    errors: dict[str, float] = {}
    for leaf in weights_of(graph):
        whole = leaf.name in trained and leaf.name not in split
        if leaf.type.elements < LEAST or whole or leaf.name in leave:
            continue
        data = graph.data[leaf.name]
        frozen = np.ones(data.shape, bool)
        if leaf.name in split:
            frozen = split[leaf.name].fixed(frozen)
        shared = few_values(data, frozen, bits, importance(graph, units, leaf))
        if not np.array_equal(shared, data):
            found[leaf.name] = shared
            change = shared.astype(np.float64) - data
            errors[leaf.name] = float(np.linalg.norm(change) / np.linalg.norm(data.astype(float)))
    return with_data(model, found), errors


def weights_of(graph: Graph) -> list[Value]:
    """The parameters that are the weight of a layer, or that one is a view of."""
    uses = Uses(graph)

    def leaf_of(value: Value) -> Value:
        maker: Node | None = uses.producer.get(value)
        return leaf_of(maker.ins[0]) if maker is not None and maker.op is Reshape else value

    layers = [(node, node.op.layer) for node in graph.nodes if node.op.layer is not None]
    leaves = dict.fromkeys(leaf_of(node.ins[layer.weight]) for node, layer in layers)
    kinds = (DType.F32, DType.I8)
    return [v for v in leaves if v.role is Role.PARAM and v.type.dtype in kinds]


def importance(graph: Graph, integers: IntegerRules, leaf: Value) -> Array:
    """How much a squared error counts: an integer stands for itself times its channel's scale."""
    if leaf.name not in integers.units:
        return np.ones(leaf.shape)
    unit = integers.units[leaf.name]
    along = [1] * leaf.type.rank
    along[unit.axis] = -1
    scale = graph.data[unit.scale].astype(np.float64).reshape(along)
    return np.broadcast_to((scale / scale.max()) ** 2, leaf.shape)


def few_values(data: Array, frozen: Array, bits: int, counts: Array) -> Array:
    """The array with each frozen number replaced by the nearest of a codebook.

    The rest is 0 in what the program stores, so that 0 is an entry then; as it is if many numbers
    are 0, as in a pruned weight.
    """
    values = data[frozen]
    if values.size == 0 or not np.all(np.isfinite(values)):
        return data
    zero = not frozen.all() or bool((values == 0).mean() > 0.5**bits)
    book = codebook(values, counts[frozen], 2**bits, zero)
    shared = data.copy()
    shared[frozen] = book[nearest(values, book)]
    return shared


def codebook(values: Array, counts: Array, most: int, zero: bool = False) -> Array:
    """At most this many values near all others, sorted, `zero` among them if it has to be.

    Those that there are, if they are few. Else Lloyd's method, from a grid between the smallest and
    the largest value. Integers give integers.
    """
    distinct, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place.ravel(), counts.ravel())
    if zero:
        mass, distinct = mass[distinct != 0], distinct[distinct != 0]
        most -= 1
    if len(distinct) > most:
        centers = lloyd(distinct.astype(np.float64), mass, most)
        whole = np.issubdtype(values.dtype, np.integer)
        distinct = np.unique((np.rint(centers) if whole else centers).astype(values.dtype))
    if zero:
        distinct = np.unique(np.append(distinct, np.zeros(1, values.dtype)))
    return distinct


def lloyd(x: Array, mass: Array, k: int) -> Array:
    """k means of the sorted values x. One without values moves to where the error is largest."""
    before = np.concatenate([np.zeros((2, 1)), np.cumsum([mass, mass * x], axis=1)], axis=1)
    centers = np.linspace(x[0], x[-1], k)
    for _ in range(ROUNDS):
        ends = np.concatenate([[0], np.searchsorted(x, middles(centers)), [len(x)]])
        total, moment = np.diff(before[:, ends], axis=1)
        means = np.where(total > 0, moment / np.where(total > 0, total, 1), centers)
        if (total == 0).any():
            owner = np.repeat(np.arange(k), np.diff(ends))
            error = np.bincount(owner, mass * (x - means[owner]) ** 2, k)
            worst = int(error.argmax())
            means[np.flatnonzero(total == 0)[0]] = (means[worst] + x[ends[worst + 1] - 1]) / 2
            means.sort()
        if np.array_equal(means, centers):
            break
        centers = means
    return centers


def middles(book: Array) -> Array:
    return (book[1:].astype(np.float64) + book[:-1]) / 2


def nearest(values: Array, book: Array) -> Array:
    """The index of the entry of a sorted codebook that is nearest to each value."""
    return np.searchsorted(middles(book), values)


def with_data(model: Model, found: Mapping[str, Array]) -> Model:
    """The model with other numbers in some parameters."""
    if not found:
        return model

    def changed(part: Imported) -> Imported:
        own = {name: found.get(name, data) for name, data in part.graph.data.items()}
        return replace(part, graph=replace(part.graph, data=own))

    return replace(model, training=changed(model.training), prediction=changed(model.prediction))
