"""The weights of a model that are compressed, by name, and the masks that hold zeros in training.

That a weight is pruned is in its number: it is zero. `hold` keeps zeros at zero while PyTorch
trains, by the masks of `torch.nn.utils.prune`; `finish` turns masked weights into plain tensors.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as masks

from ...errors import DataError, SchemeError
from ...frontend.torch.masks import follow, unfollow

Array = np.ndarray[Any, Any]
Layers = str | Sequence[str] | None  # names or patterns of layers or weights; None is for all
ORIGINAL = "_orig"  # what torch.nn.utils.prune adds to the name of a masked parameter


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter, and every module and attribute that holds it."""

    name: str
    tensor: nn.Parameter
    places: tuple[tuple[nn.Module, str], ...]

    @property
    def size(self) -> int:
        return self.tensor.numel()

    @property
    def values(self) -> Array:
        """Its numbers, flat; a masked one's are those that it has in use."""
        tensor = self.tensor.detach()
        module, name = self.places[0]
        if (mask := getattr(module, f"{name}_mask", None)) is not None:
            tensor = tensor * mask
        return flat(tensor)

    @property
    def nonzeros(self) -> int:
        return int(np.count_nonzero(self.values))

    def is_called(self, pattern: str) -> bool:
        """Whether the pattern is for its name, or for that of its module."""
        names = (self.name, self.name.rpartition(".")[0])
        return any(name and fnmatchcase(name, pattern) for name in names)


def flat(tensor: Tensor) -> Array:
    tensor = tensor.detach().cpu()
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return wide.reshape(-1).numpy()


def weights(model: nn.Module, layers: Layers = None, biases: bool = False) -> dict[str, Weight]:
    """Weights of two or more dimensions by name; those of `layers`, names of modules or patterns.

    `biases` adds the biases of the same modules. A weight with several names has its first.
    """
    if not isinstance(model, nn.Module):
        raise SchemeError(f"{type(model).__name__} is not a torch.nn.Module")
    found = all_weights(model)
    dense = {module for w in found.values() if w.tensor.ndim > 1 for module, _ in w.places}
    kept = {
        name: w
        for name, w in found.items()
        if w.tensor.is_floating_point() and w.size
        and (w.tensor.ndim > 1 or (biases and is_bias(w) and w.places[0][0] in dense))
    }  # fmt: skip
    if not kept:
        raise SchemeError("the model has no weight of two or more dimensions")
    if layers is None:
        return kept
    return chosen(kept, [layers] if isinstance(layers, str) else layers)


def all_weights(model: nn.Module) -> dict[str, Weight]:
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    names: dict[nn.Parameter, str] = {}
    for prefix, module in model.named_modules():
        for own, tensor in module._parameters.items():
            if tensor is None:
                continue
            masked = own.endswith(ORIGINAL) and f"{own[:-5]}_mask" in module._buffers
            plain = own.removesuffix(ORIGINAL) if masked else own
            places.setdefault(tensor, []).append((module, plain))
            names.setdefault(tensor, f"{prefix}.{plain}" if prefix else plain)
    return {names[t]: Weight(names[t], t, tuple(where)) for t, where in places.items()}


def is_bias(weight: Weight) -> bool:
    return weight.places[0][1].endswith("bias")


def chosen(found: dict[str, Weight], patterns: Iterable[str]) -> dict[str, Weight]:
    """Those that any pattern is for; every pattern has to be for one."""
    patterns = list(patterns)
    if not patterns:
        raise SchemeError("layers=[] is no layer", try_=("layers=None for all", *list(found)[:4]))
    for pattern in patterns:
        if not any(w.is_called(pattern) for w in found.values()):
            raise unknown(pattern, found)
    return {n: w for n, w in found.items() if any(w.is_called(p) for p in patterns)}


def unknown(pattern: str, found: Iterable[str]) -> SchemeError:
    names = list(found)
    close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4) or names[:5]
    return SchemeError(f"{pattern!r} matches no weight", try_=tuple(close))


def check_finite(found: dict[str, Weight]) -> None:
    for name, weight in found.items():
        if bad := int(np.count_nonzero(~np.isfinite(weight.values))):
            raise DataError(
                f"{bad:,} of {weight.size:,} numbers are NaN or infinite",
                at=name,
                why="they have no magnitude to rank by",
                try_="weights from before training diverged",
            )


# --- Masks ----------------------------------------------------------------------------------------


def hold(model: nn.Module, layers: Layers = None, biases: bool = False) -> list[str]:
    """Mask every zero, so that training leaves it zero; the names of the masked weights.

    An optimizer has to be made afterwards. `finish` ends it.
    """
    finish(model)
    held = []
    for name, weight in weights(model, layers, biases).items():
        zero = weight.tensor.detach() == 0
        if not zero.any():
            continue
        held.append(name)
        for module, own in weight.places:
            order = list(module._parameters)
            masks.custom_from_mask(module, own, ~zero)
            reorder(module, [own + ORIGINAL if key == own else key for key in order])
    follow(model)
    return held


def finish(model: nn.Module) -> None:
    """Turn masked weights into plain ones, in which zeros are zeros."""
    unfollow(model)
    for module in model.modules():
        masked = [n for n in module._parameters if n.endswith(ORIGINAL)]
        for own in (name.removesuffix(ORIGINAL) for name in masked):
            if f"{own}_mask" not in module._buffers:
                continue
            order = list(module._parameters)
            mask = module._buffers[f"{own}_mask"]
            assert mask is not None
            masks.remove(module, own)
            reorder(module, [own if key == own + ORIGINAL else key for key in order])
            with torch.no_grad():  # a product with 0 may be -0
                getattr(module, own).masked_fill_(mask == 0, 0.0)


def reorder(module: nn.Module, order: Iterable[str]) -> None:
    """Parameters in this order, so that a mask does not change that of the model."""
    held = dict(module._parameters)
    module._parameters.clear()
    module._parameters.update({key: held[key] for key in order})


@contextmanager
def held(model: nn.Module, layers: Layers = None, biases: bool = False) -> Iterator[None]:
    """Zeros stay zeros inside."""
    hold(model, layers, biases)
    try:
        yield
    finally:
        finish(model)
