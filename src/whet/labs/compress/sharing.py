"""Weight sharing: the weights of a layer take few values, found by k-means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import DataError, SchemeError, either
from .kmeans import INITS, Array, Init, kmeans
from .weights import finish

MOST_BITS = 8
FOUR = 'bits=4, or {"conv*": 8, "fc*": 5}', "--kmeans 4, or --kmeans conv*:8,fc*:5"


@dataclass(frozen=True)
class Shared:
    """What sharing did to one weight."""

    bits: int
    values: int  # distinct values other than zero
    error: float  # root of the mean squared change of a weight that is not zero

    def __str__(self) -> str:
        return f"{self.bits} bits, {self.values} values, RMS error {self.error:.3g}"


def share(
    model: nn.Module,
    bits: int | Mapping[str, int] = 4,
    init: Init = "linear",
    layers: str | Iterable[str] | None = None,
    seed: int = 0,
) -> dict[str, Shared]:
    """Replace the weights of each layer, in place, by at most 2**bits values.

    A zero stays a zero: in a pruned layer only the other weights are clustered, and no centroid is
    zero. `bits` is one number, or numbers by pattern, of which the first that fits a layer holds:
    {"conv*": 8, "fc*": 5}. Patterns fit names of layers or of weights; `layers` restricts what is
    shared. Without either, every weight of two or more axes is. Biases and other vectors are shared
    by patterns that end like their names, such as "*bias". Masks become zeros. No number
    changes on an error. In a network that comes with int8 scales, values are whole numbers of the
    scale of a channel, zero among them, as its int8 program stores them.
    """
    if init not in INITS:
        raise SchemeError(f"init={init!r} is not a way to start k-means", try_=INITS)
    finish(model)
    chosen = bits_by_name(model, bits, layers)
    weights, scales = dict(model.named_parameters()), channel_scales(model)
    new, found = {}, {}
    for name, width in chosen.items():
        units = clustered(name, weights[name], width, init, seed, scales.get(name))
        new[name] = units * scales[name] if name in scales else units
        found[name] = Shared(width, len(nonzeros(units)), change(weights[name], new[name]))
    with torch.no_grad():
        for name, array in new.items():
            weights[name].copy_(torch.from_numpy(array))
    return found


def change(weight: Tensor, shared: Array) -> float:
    """Root of the mean squared difference, over weights that are not zero."""
    live = shared != 0
    gaps = values_of(weight)[live].astype(np.float64) - shared[live]
    return float(np.sqrt(np.mean(gaps**2))) if live.any() else 0.0


def clustered(
    name: str, weight: Tensor, bits: int, init: Init, seed: int, scale: Array | None = None
) -> Array:
    """With a scale, in whole numbers of it, which are to be expanded from a codebook with zero."""
    old = values_of(weight)
    if not np.isfinite(old).all():
        count = int((~np.isfinite(old)).sum())
        raise DataError(f"{name} cannot be shared", why=f"{count:,} of its weights are not finite")
    old = in_units(old, scale)
    new, live = np.zeros_like(old), old != 0
    if live.any():
        codebook, index = kmeans(old[live], 2**bits - (scale is not None), init, seed)
        codebook = codebook if scale is None else np.rint(codebook)
        for i in np.flatnonzero(codebook == 0):  # would read as pruned
            cluster = old[live][index == i]
            codebook[i] = cluster[np.abs(cluster).argmin()]
        new[live] = codebook[index]
    return new


def channel_scales(model: nn.Module) -> dict[str, Array]:
    """The scale of each output channel of the weights that came as int8, to multiply them by."""
    recipe = getattr(model, "whet_recipe", None)
    if recipe is None:
        return {}
    return {
        name: np.float32(recipe.weights[name]).reshape(-1, *[1] * (weight.ndim - 1))
        for name, weight in model.named_parameters()
        if name in recipe.weights
    }


def in_units(array: Array, scale: Array | None) -> Array:
    return array if scale is None else np.rint(array / scale)


def values_of(weight: Tensor) -> Array:
    """As an array, which may lie in the memory of the tensor. NumPy has no bfloat16."""
    tensor = weight.detach().cpu()
    found: Array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return found


def nonzeros(array: Array) -> Array:
    """Distinct values other than zero, in ascending order."""
    return np.unique(array[array != 0])


def bits_by_name(
    model: nn.Module, bits: int | Mapping[str, int], layers: str | Iterable[str] | None
) -> dict[str, int]:
    """Bits of each weight that is shared, by its name."""
    if not isinstance(bits, Mapping):
        return dict.fromkeys(matching(model, layers), checked(bits))
    if not bits:
        raise SchemeError("bits={} is for no layer", try_=either(*FOUR))
    names = matching(model, layers, vectors=layers is None)
    for pattern, width in bits.items():
        checked(width, pattern)
        if not any(fits(name, pattern, names[name]) for name in names):
            raise unknown(
                either(f"bits={{{pattern!r}: {width}}}", f"--kmeans {pattern}:{width}"), model
            )
    given = ((name, [w for p, w in bits.items() if fits(name, p, names[name])]) for name in names)
    return {name: widths[0] for name, widths in given if widths}


def checked(bits: int, pattern: str = "") -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_BITS:
        of = f" for {pattern!r}" if pattern else ""
        raise SchemeError(
            f"{either(f'bits={bits!r}', f'--kmeans {bits}')}{of} is not a size of an index",
            why=f"an index has 1 to {MOST_BITS} bits",
            try_=either(*FOUR),
        )
    return bits


def matching(
    model: nn.Module, layers: str | Iterable[str] | None, vectors: bool = False
) -> dict[str, int]:
    """The axes of each weight of two or more, or of each that any of the patterns fits."""
    every = {n: p.ndim for n, p in model.named_parameters() if p.is_floating_point() and p.ndim}
    if layers is None:
        found = {name: axes for name, axes in every.items() if vectors or axes > 1}
        if not found:
            raise SchemeError("the model has no weights to share", why="none has two or more axes")
        return found
    patterns = [layers] if isinstance(layers, str) else list(layers)
    for pattern in patterns:
        if not any(fits(name, pattern, axes) for name, axes in every.items()):
            raise unknown(f"layers={pattern!r}", model)
    return {n: axes for n, axes in every.items() if any(fits(n, p, axes) for p in patterns)}


def shareable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Weights of two or more axes."""
    return [(n, p) for n, p in model.named_parameters() if p.ndim >= 2 and p.is_floating_point()]


def fits(name: str, pattern: str, axes: int) -> bool:
    """Whether a pattern is for this weight: by its own name, or by that of its layer.

    A pattern for layers does not mean their biases.
    """
    layer, _, attribute = name.rpartition(".")
    if axes < 2:
        return fnmatchcase(name, pattern) and pattern.endswith(attribute)
    return fnmatchcase(name, pattern) or fnmatchcase(layer, pattern)


def unknown(given: str, model: nn.Module) -> SchemeError:
    names = [name for name, _ in shareable(model)]
    more = [f"... {len(names) - 8} more"] if len(names) > 8 else []
    return SchemeError(f"{given} fits no weight of the model", try_=[*names[:8], *more])


def round_to_f16(model: nn.Module) -> int:
    """Round every parameter, in place, to a value that 16 bits hold; how many changed.

    `save` then stores biases and codebooks in half the bytes. A weight that is not zero stays so.
    Nothing changes if a parameter is too large.
    """
    weights = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
    new = {name: halved(name, weight.detach()) for name, weight in weights.items()}
    with torch.no_grad():
        changed = sum(int((weights[name] != half).sum()) for name, half in new.items())
        for name, half in new.items():
            weights[name].copy_(half)
    return changed


def halved(name: str, weight: Tensor) -> Tensor:
    half = weight.half()
    if bool((half.isinf() & weight.isfinite()).any()):
        most = float(weight.abs().max())
        raise DataError(f"{name} has no form in 16 bits", why=f"it reaches {most:g}, over 65504")
    least = torch.full_like(half, 2.0**-24).copysign(weight)
    return torch.where((half == 0) & (weight != 0), least, half).to(weight.dtype)
