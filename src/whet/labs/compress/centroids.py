"""Fine-tuning of shared weights: what trains are the codebooks.

While a model is held, `weight` of a shared layer is computed as codebook[index], with zeros where
it was pruned, and the codebook is the parameter. Its gradient is that of the weights summed over
each cluster, by the chain rule; any training loop, any optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ...errors import DataError, SchemeError
from .kmeans import Array
from .sharing import MOST_BITS, channel_scales, in_units, matching, nonzeros, values_of

MOST_VALUES = 2**MOST_BITS


class Codebook(nn.Module):
    """The parametrization: `right_inverse` takes a codebook out of a weight, `forward` expands it.

    Index 0 is the zero of a pruned weight, index i + 1 the codebook's entry i. With scales of
    channels, values are whole numbers of the mean scale, in training too (a straight-through
    estimator), and each channel has its share of that.
    """

    index: Tensor
    ratio: Tensor | None

    def __init__(self, weight: Tensor, order: list[str], scale: Array | None = None) -> None:
        super().__init__()
        self.order = order  # of the layer's parameters
        array = in_units(values_of(weight), scale)
        codebook = nonzeros(array)
        place = np.where(array == 0, 0, np.searchsorted(codebook, array) + 1)
        self.register_buffer("index", torch.from_numpy(place.astype(np.int32)).to(weight.device))
        unit = 1.0 if scale is None else scale.mean()
        self.unit = float(unit)
        ratio = None if scale is None else torch.from_numpy(scale / unit).to(weight)
        self.register_buffer("ratio", ratio)
        self.start = torch.from_numpy(codebook * unit).to(weight)

    def forward(self, codebook: Tensor) -> Tensor:
        if self.ratio is None:
            return self.expanded(codebook)
        units = codebook / self.unit
        whole = units + (units.round().clamp(-127, 127) - units).detach()
        return self.expanded(whole * self.unit) * self.ratio

    def expanded(self, codebook: Tensor) -> Tensor:
        return torch.cat([codebook.new_zeros(1), codebook])[self.index]

    def right_inverse(self, weight: Tensor) -> Tensor:
        return self.start.clone()


def hold_shared(model: nn.Module, layers: str | Iterable[str] | None = None) -> list[str]:
    """Train codebooks in place of weights, until `release`; returns the names of these weights.

    Held are the layers that patterns in `layers` fit, or all with at most 256 values other than
    zero. A held weight appears in `model.parameters()` as its codebook: create optimizers after
    this call.
    """
    chosen, scales = held_names(model, layers), channel_scales(model)
    for name in chosen:
        weight = model.get_parameter(name)
        places = places_of(model, weight)
        (first, attribute), *others = places
        weight.grad = None  # it has the shape of the weight
        for module, own in others:
            setattr(module, own, nn.Parameter(weight.detach().clone()))
        for module, own in places:
            order = [n for n, _ in module.named_parameters(recurse=False)]
            codebook = Codebook(getattr(module, own), order, scales.get(name))
            parametrize.register_parametrization(module, own, codebook)
        for module, own in others:  # a tied weight has one codebook
            chain(module, own).original = chain(first, attribute).original
    return chosen


def release(model: nn.Module) -> list[str]:
    """The model as before `hold_shared`, with weights from the codebooks as they are now."""
    names = []
    known: dict[nn.Parameter, Tensor] = {}  # codebooks, as they are before they become weights
    for path, module in list(model.named_modules()):
        for attribute, codebook in held_in(module).items():
            original = chain(module, attribute).original
            if original in known:  # a tied weight
                chain(module, attribute).original = nn.Parameter(known[original])
            else:
                known[original] = original.detach().clone()
                original.grad = None
                names.append(f"{path}.{attribute}" if path else attribute)
            parametrize.remove_parametrizations(module, attribute)
            setattr(module, attribute, original)
            for name in codebook.order:  # the weight came back as the last
                parameter = getattr(module, name)
                if isinstance(parameter, nn.Parameter):
                    delattr(module, name)
                    module.register_parameter(name, parameter)
    return names


def train_centroids(
    model: nn.Module,
    train: Callable[[nn.Module], None],
    layers: str | Iterable[str] | None = None,
) -> list[str]:
    """One round of `train` on the codebooks. Layers that are not shared train as ever.

    Shared weights stay shared, and zeros stay zeros, also when `train` raises.
    """
    chosen = hold_shared(model, layers)
    try:
        train(model)
    finally:
        release(model)
    return chosen


def held_in(module: nn.Module) -> dict[str, Codebook]:
    """Attributes of a module that are computed from codebooks."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, nn.ModuleDict):
        return {}
    first = {name: next(one.children()) for name, one in found.items()}
    return {name: one for name, one in first.items() if isinstance(one, Codebook)}


def held_names(model: nn.Module, layers: str | Iterable[str] | None) -> list[str]:
    """The names to hold, after every check, so that nothing changes on an error."""
    if any(held_in(module) for module in model.modules()):
        raise SchemeError("shared weights are held already", try_="release(model)")
    weights, scales = dict(model.named_parameters()), channel_scales(model)
    chosen = []
    for name in matching(model, layers):
        array = values_of(weights[name])
        if not np.isfinite(array).all():
            raise DataError(f"{name} cannot be held", why="it has weights that are not finite")
        if (count := len(nonzeros(in_units(array, scales.get(name))))) <= MOST_VALUES:
            chosen.append(name)
        elif layers is not None:
            why = f"it has {count:,} distinct values, at most {MOST_VALUES} are allowed"
            raise SchemeError(f"{name} is not shared", why=why, try_="share(model) first")
    if not chosen:
        raise SchemeError("no weight of the model is shared", try_="share(model) first")
    return chosen


def places_of(model: nn.Module, parameter: nn.Parameter) -> list[tuple[nn.Module, str]]:
    """Every module and attribute that holds it: several, if it is tied."""
    return [
        (module, name)
        for module in model.modules()
        for name, own in module._parameters.items()
        if own is parameter
    ]


def chain(module: nn.Module, attribute: str) -> Any:
    """The parametrization of an attribute; its `original` is the parameter."""
    return module.get_submodule(f"parametrizations.{attribute}")
