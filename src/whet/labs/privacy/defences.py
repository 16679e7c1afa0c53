"""Defences: pure functions of the gradients of one update, by parameter name.

Each gives the gradients that are sent, and masks of the coordinates that were not set to zero if
it sets any to zero. Noise is relative to the root mean square of all the gradients unless it is
said to be absolute; the DLG paper's "1e-4 to 1e-1" are absolute, which means little without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import DataError
from .recovered import Array

Gradients = Mapping[str, Array]


@dataclass(frozen=True)
class Defended:
    """What is sent after a defence, and what it did in numbers."""

    gradients: dict[str, Array]
    masks: dict[str, Array] = field(default_factory=dict)
    absolute: float = 0.0  # standard deviation of the noise
    relative: float = 0.0  # that over the root mean square of the gradients it was added to
    scaled: bool = False  # whether one factor, which is not sent, scales all of them


def rms(gradients: Gradients) -> float:
    """The root mean square of all coordinates together."""
    count = sum(g.size for g in gradients.values())
    return norm(gradients) / np.sqrt(count) if count else 0.0


def norm(gradients: Gradients) -> float:
    return float(np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in gradients.values())))


def none(gradients: Gradients) -> Defended:
    return Defended({n: g.astype(np.float32) for n, g in gradients.items()})


def gaussian(
    gradients: Gradients, scale: float, *, absolute: bool = False, seed: int = 0
) -> Defended:
    """Add normal noise with a standard deviation of `scale`."""
    return _noisy(gradients, scale, absolute, seed, lambda r, size: r.standard_normal(size))


def laplacian(
    gradients: Gradients, scale: float, *, absolute: bool = False, seed: int = 0
) -> Defended:
    """Add Laplacian noise with a standard deviation of `scale`, so that rows can be compared."""
    return _noisy(gradients, scale, absolute, seed, lambda r, size: r.laplace(0, 0.5**0.5, size))


def _noisy(
    gradients: Gradients,
    scale: float,
    absolute: bool,
    seed: int,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array],
) -> Defended:
    if not scale >= 0 or not np.isfinite(scale):
        raise DataError(f"noise of {scale} is no scale", try_="a number from 0 on")
    size = rms(gradients)
    deviation = scale if absolute else scale * size
    random = np.random.default_rng(seed)
    sent = {n: (g + deviation * draw(random, g.shape)).astype(np.float32)
            for n, g in gradients.items()}  # fmt: skip
    return Defended(sent, absolute=deviation, relative=deviation / size if size else 0.0)


def prune(gradients: Gradients, fraction: float) -> Defended:
    """Set the smallest `fraction` of each tensor's coordinates to zero, as in the DLG paper."""
    if not 0 <= fraction < 1:
        raise DataError(f"pruning {fraction} of a gradient", try_="a fraction from 0 to below 1")
    masks = {n: largest(np.abs(g), g.size - int(fraction * g.size)) for n, g in gradients.items()}
    return _masked(gradients, masks)


def top_k(gradients: Gradients, fraction: float) -> Defended:
    """Keep the largest `fraction` of all coordinates together, at least one: what a first round of
    Deep Gradient Compression sends."""
    if not 0 < fraction <= 1:
        raise DataError(f"top {fraction} of a gradient", try_="a fraction above 0, up to 1")
    flat = np.concatenate([np.abs(g).ravel() for g in gradients.values()])
    kept = largest(flat, max(1, round(fraction * flat.size)))
    ends = np.cumsum([g.size for g in gradients.values()])[:-1]
    pieces = zip(gradients.items(), np.split(kept, ends), strict=True)
    return _masked(gradients, {n: piece.reshape(g.shape) for (n, g), piece in pieces})


def largest(sizes: Array, count: int) -> Array:
    """True for exactly `count` of them, the first ones among equals."""
    order = np.argsort(-sizes, axis=None, kind="stable")[:count]
    mask = np.zeros(sizes.size, bool)
    mask[order] = True
    return mask.reshape(sizes.shape)


def _masked(gradients: Gradients, masks: dict[str, Array]) -> Defended:
    sent = {n: np.where(masks[n], g, 0).astype(np.float32) for n, g in gradients.items()}
    return Defended(sent, masks)


def fp16(gradients: Gradients) -> Defended:
    """Round to half precision; what is too large for it becomes the largest finite number."""
    end = float(np.finfo(np.float16).max)
    sent = {n: np.clip(g, -end, end).astype(np.float16) for n, g in gradients.items()}
    return Defended({n: g.astype(np.float32) for n, g in sent.items()})


def int8(gradients: Gradients) -> Defended:
    """Round to 255 levels, symmetric about zero, one scale per tensor."""
    sent = {}
    for name, g in gradients.items():
        step = float(np.abs(g).max(initial=0)) / 127
        sent[name] = (np.rint(g / step) * step if step else g).astype(np.float32)
    return Defended(sent)


def clip(gradients: Gradients, limit: float) -> Defended:
    """Scale all of them by one factor so that their norm is at most `limit`."""
    if not limit > 0:
        raise DataError(f"a norm of at most {limit}", try_="a limit above 0")
    factor = min(1.0, limit / max(norm(gradients), 1e-30))
    sent = {n: (g * factor).astype(np.float32) for n, g in gradients.items()}
    return Defended(sent, scaled=True)


def clip_and_noise(
    gradients: Gradients, limit: float, multiplier: float, *, seed: int = 0
) -> Defended:
    """The Gaussian mechanism of DP-SGD: clip, then noise of `multiplier` times the limit."""
    clipped = clip(gradients, limit).gradients
    noisy = gaussian(clipped, multiplier * limit, absolute=True, seed=seed)
    return replace(noisy, scaled=True)
