"""How PyTorch sees the tensors of a program: shapes, orders and names of their axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..frontend.model import Model
from ..ir import Role, Type
from ..ir.axes import in_words, names_by_order, plain_names
from ..passes import WeightSlice


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


def infos_of(model: Model, parts: Mapping[str, WeightSlice]) -> dict[str, TensorInfo]:
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


def parts_of(
    parts: Mapping[str, WeightSlice], tensors: Mapping[str, TensorInfo]
) -> dict[str, TensorInfo]:
    found = {}
    for name, part in parts.items():
        whole = tensors[part.parameter]
        shape = list(whole.type.shape)
        shape[part.axis] = len(part.indices)
        found[name] = TensorInfo(replace(whole.type, shape=tuple(shape)), whole.order)
    return found
