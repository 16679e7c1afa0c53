"""Resize and Upsample.

Every mode of the standard is linear, one axis after the other, so that a resize is a product with
a matrix for each axis. Where PyTorch has the same interpolation, its operator is called instead,
which has a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ....ir import Array
from ..rows import Call, ints, row
from .moving import positive


@dataclass(frozen=True)
class Axis:
    """How one axis is resized."""

    size: int
    after: int
    scale: float
    start: float = 0.0  # the region of interest
    end: float = 1.0


def weights(c: Call, axis: Axis) -> tuple[Array, Array]:
    """The matrix [after, size], and which results lie outside of the picture."""
    places = coordinates(c, axis)
    mode, outside = c.attr("mode", "nearest"), np.zeros(axis.after, bool)
    if c.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        outside = (places < 0) | (places > axis.size - 1)
    if mode == "nearest":
        index = rounded(c, places).clip(0, axis.size - 1).astype(np.int64)
        return np.eye(axis.size)[index], outside
    if mode not in ("linear", "bilinear", "cubic"):
        c.refuse(f"the mode {mode}")
    reach = 2.0 if mode == "cubic" else 1.0
    shrink = min(axis.scale, 1.0) if c.flag("antialias") else 1.0
    shape = cubic(c.attr("cubic_coeff_a", -0.75)) if mode == "cubic" else linear
    matrix = np.zeros((axis.after, axis.size))
    for i, place in enumerate(places):
        first, last = math.floor(place - reach / shrink), math.ceil(place + reach / shrink)
        at = np.arange(first, last + 1)
        share = shape((at - place) * shrink)
        inside = (at >= 0) & (at < axis.size)
        share = share * inside if c.flag("exclude_outside") else share
        share = share / share.sum()
        np.add.at(matrix[i], at.clip(0, axis.size - 1), share)
    return matrix, outside


def coordinates(c: Call, axis: Axis) -> Array:
    """Where in the picture each result is."""
    x, size, exact = np.arange(axis.after, dtype=np.float64), axis.size, axis.scale * axis.size
    way = c.attr("coordinate_transformation_mode", "half_pixel" if c.version > 10 else "asymmetric")
    if way == "asymmetric":
        return x / axis.scale
    if way == "align_corners":
        return np.zeros_like(x) if exact == 1 else x * (size - 1) / (exact - 1)
    if way == "tf_crop_and_resize":
        span = (axis.end - axis.start) * (size - 1)
        moved = np.full_like(x, span / 2) if exact == 1 else x * span / (exact - 1)
        return moved + axis.start * (size - 1)
    if way == "pytorch_half_pixel" and exact == 1:
        return np.full_like(x, -0.5)
    if way == "half_pixel_symmetric":
        offset = size / 2 * (1 - axis.after / exact)
        return offset + (x + 0.5) / axis.scale - 0.5
    if way not in ("half_pixel", "pytorch_half_pixel"):
        c.refuse(f"the coordinates {way}")
    return (x + 0.5) / axis.scale - 0.5


def rounded(c: Call, places: Array) -> Array:
    default = "round_prefer_floor" if c.version > 10 else "floor"
    way = c.attr("nearest_mode", default)
    ways: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if way not in ways:
        c.refuse(f"the nearest mode {way}")
    return ways[way](places)


def linear(distance: Array) -> Array:
    return np.clip(1 - np.abs(distance), 0, None)


def cubic(a: float) -> Callable[[Array], Array]:
    def compute(distance: Array) -> Array:
        x = np.abs(distance)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return compute


def resized(c: Call, x: Tensor, axes: dict[int, Axis]) -> Tensor:
    axes = {i: a for i, a in axes.items() if not (a.size == a.after and a.scale == 1)} | {
        i: a for i, a in axes.items() if (a.start, a.end) != (0.0, 1.0)
    }
    quick = by_pytorch(c, x, axes)
    if quick is not None:
        return quick
    kind = x.dtype
    if not kind.is_floating_point and c.attr("mode", "nearest") != "nearest":
        return as_integers(resized(c, x.double(), axes), kind)
    value, beyond = c.attr("extrapolation_value", 0.0), None
    for i, axis in sorted(axes.items()):
        matrix, outside = weights(c, axis)
        x = torch.movedim(x, i, -1) @ torch.from_numpy(matrix.T.copy()).to(x.dtype)
        x = torch.movedim(x, -1, i)
        if outside.any():
            wanted = [1] * x.ndim
            wanted[i] = axis.after
            mask = torch.from_numpy(outside).reshape(wanted)
            beyond = mask if beyond is None else beyond | mask
    return x if beyond is None else torch.where(beyond, torch.tensor(value, dtype=x.dtype), x)


def as_integers(x: Tensor, kind: torch.dtype) -> Tensor:
    """The nearest integers of this type; halves become even."""
    if kind == torch.bool:
        return x.round().bool()
    limits = torch.iinfo(kind)
    return x.round().clamp(limits.min, limits.max).to(kind)


def by_pytorch(c: Call, x: Tensor, axes: dict[int, Axis]) -> Tensor | None:
    """Pictures that become larger by whole factors, or linearly."""
    default = "half_pixel" if c.version > 10 else "asymmetric"
    way, mode = c.attr("coordinate_transformation_mode", default), c.attr("mode", "nearest")
    if x.ndim != 4 or not axes or not set(axes) <= {2, 3} or c.flag("antialias"):
        return None
    sizes = [axes[i].after if i in axes else x.shape[i] for i in (2, 3)]
    exact = all(a.scale * a.size == a.after for a in axes.values())
    whole = all(a.after % a.size == 0 for a in axes.values())
    if mode == "nearest" and whole and exact:
        floor = c.attr("nearest_mode", "round_prefer_floor" if c.version > 10 else "floor")
        if (way, floor) in (
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_floor"),
            ("half_pixel", "round_prefer_ceil"),
        ):
            return F.interpolate(x, size=sizes, mode="nearest")
    single = any(n == 1 for n in sizes)
    if mode in ("linear", "bilinear") and exact and not single and not c.flag("exclude_outside"):
        if way in ("half_pixel", "pytorch_half_pixel", "align_corners"):
            corners = way == "align_corners"
            return F.interpolate(x, size=sizes, mode="bilinear", align_corners=corners)
    return None


@row("Resize", known=(1, 2, 3))
def resize(
    c: Call,
    x: Tensor,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
) -> Tensor:
    if c.version < 11:
        roi, scales = None, roi
    axes = [positive(a, x.ndim) for a in c.attr("axes") or range(x.ndim)]
    region = np.asarray(roi, np.float64).reshape(-1) if roi is not None else np.zeros(0)
    if c.attr("coordinate_transformation_mode") != "tf_crop_and_resize" or not region.size:
        region = np.array([0.0] * len(axes) + [1.0] * len(axes))
    found = {}
    if sizes is not None and np.size(sizes):
        wanted = ints(sizes)
        factors = [n / x.shape[a] for n, a in zip(wanted, axes, strict=True)]
        policy = c.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = max(factors) if policy == "not_smaller" else min(factors)
            factors = [factor] * len(axes)
            wanted = [math.floor(factor * x.shape[a] + 0.5) for a in axes]
    elif scales is not None:
        factors = [float(n) for n in np.asarray(scales).reshape(-1)]
        wanted = [math.floor(n * x.shape[a]) for n, a in zip(factors, axes, strict=True)]
    else:
        c.refuse("neither scales nor sizes")
    for i, (a, n, factor) in enumerate(zip(axes, wanted, factors, strict=True)):
        found[a] = Axis(x.shape[a], n, factor, region[i], region[i + len(axes)])
    return resized(c, x, found)


@row("Upsample", known=(1,))
def upsample(c: Call, x: Tensor, scales: Array | None = None) -> Tensor:
    factors = [float(n) for n in (c.attr("scales") if scales is None else scales)]
    axes = {
        i: Axis(x.shape[i], math.floor(factor * x.shape[i]), factor)
        for i, factor in enumerate(factors)
    }
    return resized(c, x, axes)
