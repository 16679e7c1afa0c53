"""The result of a front end: graphs, and how they relate to the tensors of a framework.

Nothing here depends on a framework, so that each can have its own front end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..ir import Array, DType, Graph, Role, Value, prune
from ..ir.quant import Fold, Quant, Recipe
from ..training import Training

Order = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """Stored axis k of `value` is the tensor's axis `order[k]`."""

    value: Value
    order: Order

    @property
    def rank(self) -> int:
        return len(self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = [0] * self.rank
        for axis, n in zip(self.order, self.value.shape, strict=True):
            sizes[axis] = n
        return tuple(sizes)

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    def stored(self, axis: int) -> int:
        """Which stored axis holds the tensor's axis."""
        return self.order.index(axis % self.rank if self.rank else 0)


def plain_order(rank: int) -> Order:
    return tuple(range(rank))


@dataclass(frozen=True)
class Imported:
    """A forward graph, and how its leaves and outputs relate to PyTorch's tensors."""

    graph: Graph
    orders: dict[str, Order]  # stored axis order of every input, label, parameter and state
    outputs: tuple[Tensor, ...]
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # axis names of inputs
    masks: Mapping[str, Array] = field(default_factory=dict)  # that parameters are multiplied by
    grids: Mapping[str, Quant] = field(default_factory=dict)  # that values are rounded to, by name


@dataclass(frozen=True)
class Model:
    """An imported model: with its loss, in its current mode, and alone, in eval mode.

    The first output of `training` is the loss; the outputs of `prediction` are the model's.
    """

    training: Imported
    prediction: Imported
    rules: Training
    lr: float
    trainable: tuple[str, ...]  # what PyTorch would train: requires_grad, and in the optimizer
    independent: bool = False  # whether samples do not affect each other
    quants: Mapping[str, Quant] = field(default_factory=dict)  # of int8 inputs
    folds: Mapping[str, Fold] = field(default_factory=dict)  # of integer parameters
    recipe: Recipe | None = None  # the recipe of an integer model
    example: Array | None = None  # a batch that it was calibrated with, as its graphs store it
    # Which elements of a parameter are live, for those that have zeros or that a mask prunes.
    live: Mapping[str, Array] = field(default_factory=dict)
    shorter: Mapping[int, Model] = field(default_factory=dict)  # the same for shorter sequences
    masked: frozenset[str] = frozenset()  # those that a mask prunes: they never train whole
    # Parameters in a file that the model came from: the format, and the bytes of its blocks.
    blocks: Mapping[str, Callable[[], tuple[str, Array]]] = field(default_factory=dict)
    meta: bool = False  # parameters have no values, so that programs can only be planned


def without_loss(training: Imported) -> Imported:
    """Remove the loss: in eval mode, the model with its loss contains the model alone."""
    graph, outputs = training.graph, training.outputs[1:]
    leaves = tuple(v for v in graph.leaves if v.role is not Role.LABEL)
    alone = Graph(graph.name, leaves, graph.nodes, tuple(t.value for t in outputs), (), graph.data)
    return replace(training, graph=prune(alone), outputs=outputs)
