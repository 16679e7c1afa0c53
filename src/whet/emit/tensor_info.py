"""How PyTorch sees the tensors of a program: shapes, orders and names of their axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..frontend.model import Model
from ..ir import Array, Part, Role, Type
from ..ir.axes import in_words, names_by_order, plain_names


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as stored, and the order its axes have there: stored axis k is axis order[k]."""

    type: Type
    order: tuple[int, ...]
    names: tuple[str, ...] = ()  # of its axes, as PyTorch has them

    @property
    def axes(self) -> str:
        """Sizes and names of the axes in the order they are stored in; empty for a number."""
        if not self.order:
            return ""
        sizes = " x ".join(map(str, self.type.shape))
        return f"{sizes}: {in_words(self.names or plain_names(len(self.order)), self.order)}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape PyTorch knows."""
        sizes = [0] * len(self.order)
        for axis, n in zip(self.order, self.type.shape, strict=True):
            sizes[axis] = n
        return tuple(sizes)


@dataclass(frozen=True)
class PartView:
    """A part that trains, and the parameter it stands for, both with PyTorch's axes."""

    part: Part
    whole: tuple[int, ...]  # the order of the parameter's axes as stored

    def take(self, whole: Array) -> Array:
        """The numbers of the part, from those of the parameter."""
        return self._seen(self.part.take(whole.transpose(self.whole)))

    def reduce(self, gradient: Array) -> Array:
        """The gradient of the part, from that of the parameter."""
        return self._seen(self.part.reduce(gradient.transpose(self.whole)))

    def put(self, part: Array, rest: Array) -> Array:
        """The numbers of the parameter; those that do not train are from `rest`."""
        own = self.part.order(self.whole)
        found = self.part.put(part.transpose(own), rest.transpose(self.whole).copy())
        return found.transpose(np.argsort(self.whole))

    def _seen(self, part: Array) -> Array:
        return part.transpose(np.argsort(self.part.order(self.whole)))


def infos_of(model: Model, parts: Mapping[str, Part]) -> dict[str, TensorInfo]:
    """How PyTorch sees every tensor that it shares with the program, by name."""
    found: dict[str, TensorInfo] = {}
    (output, *_) = model.prediction.outputs
    for part in (model.training, model.prediction):
        for leaf in part.graph.leaves:
            if leaf.name in part.orders and leaf.role is not Role.CONST:
                order = part.orders[leaf.name]
                names = part.axes.get(leaf.name) or plain_names(len(order), model.independent)
                if leaf.role is Role.LABEL and output.order == order:
                    names = axes_of(model, order)
                found.setdefault(leaf.name, TensorInfo(leaf.type, order, names))
    return found | parts_of(parts, found)


def outputs_of(model: Model) -> tuple[TensorInfo, ...]:
    """How PyTorch sees what the model predicts."""
    return tuple(
        TensorInfo(t.value.type, t.order, axes_of(model, t.order)) for t in model.prediction.outputs
    )


def axes_of(model: Model, order: tuple[int, ...]) -> tuple[str, ...]:
    """Names for the axes of an output, or of a label that lies as it does."""
    return names_by_order(order) or plain_names(len(order), model.independent)


def parts_of(parts: Mapping[str, Part], tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    found = {}
    for name, part in parts.items():
        whole = tensors[part.parameter]
        kind = replace(whole.type, shape=part.shape(whole.type.shape))
        found[name] = TensorInfo(kind, part.order(whole.order))
    return found
