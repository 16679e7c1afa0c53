"""Pooling and resampling."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import Op
from ....ops.pool import AvgPool2d, MaxPool2d
from ....ops.reduce import Mean
from ....ops.resize import UpsampleBilinear, UpsampleNearest
from ...model import Tensor
from ..importer import HANDLERS, Importer, Operand, Unsupported, aten
from ..tensor import channels_last
from .convolution import both, images, linear, result


def windows(
    size: tuple[int, ...], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool,
    space: int,
) -> dict[str, Any]:  # fmt: skip
    """Attributes of a pool. With ceil_mode, the last window may end, but not start, outside."""
    k = both(kernel, space)
    s = k if stride in (None, (), []) else both(stride, space)
    p, d = both(padding, space, 0), both(dilation, space)
    out = []
    for axis in range(2):
        room = size[axis] + 2 * p[axis] - d[axis] * (k[axis] - 1) - 1
        n = (-(-room // s[axis]) if ceil else room // s[axis]) + 1
        if ceil and (n - 1) * s[axis] >= size[axis] + p[axis]:
            n -= 1
        if n < 1:
            raise Unsupported(f"a {k} window that does not fit into {size}")
        out.append(n)
    return dict(out=(out[0], out[1]), kernel=k, stride=s, pad=p, dilation=d)


def pool(
    m: Importer, op: type[Op], x: Operand, space: int, shape: tuple[Any, ...], **attrs: Any
) -> Tensor:
    """`shape` is kernel, stride, padding, dilation, ceil_mode."""
    value, unbatched = images(m, x, space)
    kernel, stride, padding, dilation, ceil = shape
    attrs |= windows(value.shape[1:3], kernel, stride, padding, dilation, ceil, space)
    return result(m, m.emit(op, value, order=channels_last(4), **attrs), space, unbatched)


def register_pools(space: int) -> None:
    """Over one or two axes."""

    @aten(f"max_pool{space}d.default")
    def max_pool(
        m: Importer, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0,
        dilation: Any = 1, ceil_mode: bool = False,
    ) -> Tensor:  # fmt: skip
        return pool(m, MaxPool2d, x, space, (kernel, stride, padding, dilation, ceil_mode))

    @aten(f"max_pool{space}d_with_indices.default")
    def max_pool_with_indices(m: Importer, *args: Any) -> tuple[Tensor]:
        return (max_pool(m, *args),)

    @aten(f"avg_pool{space}d.default")
    def avg_pool(
        m: Importer, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:  # fmt: skip
        shape = (kernel, stride, padding, 1, ceil_mode)
        attrs = dict(count_pad=count_include_pad, divisor=divisor_override or 0)
        return pool(m, AvgPool2d, x, space, shape, **attrs)

    @aten(f"adaptive_avg_pool{space}d.default")
    def adaptive_avg_pool(m: Importer, x: Operand, out: Any) -> Tensor:
        return adaptive(m, AvgPool2d, x, out, space)

    @aten(f"adaptive_max_pool{space}d.default")
    def adaptive_max_pool(m: Importer, x: Operand, out: Any) -> tuple[Tensor]:
        return (adaptive(m, MaxPool2d, x, out, space),)


register_pools(2)
register_pools(1)
aten("_adaptive_avg_pool2d.default")(HANDLERS["adaptive_avg_pool2d.default"])


def adaptive(m: Importer, op: type[Op], x: Operand, out: Any, space: int) -> Tensor:
    """An even division becomes an ordinary pool, a single window a mean."""
    value, unbatched = images(m, x, space)
    h, w = value.shape[1:3]
    sizes = [out] if isinstance(out, int) else list(out)
    sizes = ([1] if space == 1 else []) + sizes
    p, q = (n if n is not None else size for n, size in zip(sizes, (h, w), strict=True))
    order = channels_last(4)
    if op is AvgPool2d and (p, q) == (1, 1):
        y = m.emit(Mean, value, order=order, axes=(1, 2))
    elif h % p == 0 and w % q == 0:
        k = (h // p, w // q)
        y = m.emit(op, value, order=order, out=(p, q), kernel=k, stride=k)
    else:
        y = m.emit(op, value, order=order, out=(p, q), adaptive=True)
    return result(m, y, space, unbatched)


# Resampling ----------------------------------------------------------------------------------


def step(op: type[Op], space: int, n: int, target: int, factor: float | None) -> float:
    """Source pixels per target pixel.

    A factor like 1.7 need not be the ratio of the sizes, and PyTorch uses the factor. Some of its
    loops, however, have a fast path for equal or doubled sizes, which uses the sizes. For nearest1d
    only its gradient does so, which then is not the gradient of its value; ours is.
    """
    if op is UpsampleBilinear:
        by_size = target == n
    else:
        by_size = space == 2 and target in (n, 2 * n)
    return n / target if by_size or not factor else 1.0 / factor


def resize(
    m: Importer, op: type[Op], x: Operand, out: Any, scales: Any, align: bool, space: int = 2
) -> Tensor:
    value, unbatched = images(m, x, space)
    size = value.shape[1:3]
    factors: list[Any] = [None, None] if scales is None else list(scales)
    factors = [1.0, *factors] if len(factors) < 2 else factors
    if out is None:
        out = [math.floor(n * f) for n, f in zip(size, factors, strict=True)]
    elif space == 1:
        out = [1, *out]
    steps = []
    for n, target, factor in zip(size, out, factors, strict=True):
        if align:
            steps.append((n - 1) / (target - 1) if target > 1 else 0.0)
        else:
            steps.append(step(op, space, n, target, factor))
    attrs = dict(out=(int(out[0]), int(out[1])), step=(steps[0], steps[1]), align_corners=align)
    return result(m, m.emit(op, value, order=channels_last(4), **attrs), space, unbatched)


@aten("upsample_nearest2d.vec")
def upsample_nearest2d(m: Importer, x: Operand, out: Any, scales: Any) -> Tensor:
    return resize(m, UpsampleNearest, x, out, scales, False)


@aten("upsample_nearest2d.default")
def upsample_nearest2d_default(
    m: Importer, x: Operand, out: Any, h: float | None = None, w: float | None = None
) -> Tensor:
    return resize(m, UpsampleNearest, x, out, (h, w), False)


@aten("upsample_nearest1d.vec")
def upsample_nearest1d(m: Importer, x: Operand, out: Any, scales: Any) -> Tensor:
    return resize(m, UpsampleNearest, x, out, scales, False, 1)


@aten("upsample_bilinear2d.vec")
def upsample_bilinear2d(
    m: Importer, x: Operand, out: Any, align_corners: bool, scales: Any
) -> Tensor:
    return resize(m, UpsampleBilinear, x, out, scales, align_corners)


@aten("upsample_linear1d.vec")
def upsample_linear1d(m: Importer, x: Operand, out: Any, align: bool, scales: Any) -> Tensor:
    return resize(m, UpsampleBilinear, x, out, scales, align, 1)


def by_matrices(name: str) -> None:
    """Resampling as products with constant matrices, rows then columns; PyTorch provides the
    matrices."""
    resample = getattr(torch.ops.aten, name).vec

    @aten(f"{name}.vec")
    def handler(m: Importer, x: Operand, out: Any, align: bool, scales: Any) -> Tensor:
        t = m.tensor(x)
        for axis in (2, 3):
            n = t.shape[axis]
            units = torch.eye(n, dtype=torch.float64).reshape(1, 1, n, n)
            size = None if out is None else [out[axis - 2], n]
            factors = None if scales is None else [scales[axis - 2], 1.0]
            matrix = resample(units, size, align, factors)[0, 0]
            t = along(m, t, axis, matrix)
        return t


by_matrices("upsample_bicubic2d")
by_matrices("_upsample_bicubic2d_aa")
by_matrices("_upsample_bilinear2d_aa")


def along(m: Importer, x: Tensor, axis: int, matrix: torch.Tensor) -> Tensor:
    """The matrix times every vector of x along an axis."""
    last = [a for a in range(x.rank) if a != axis] + [axis]
    y = linear(m, m.arranger.permute(x, tuple(last)), matrix)
    return m.arranger.permute(y, tuple(last.index(a) for a in range(x.rank)))
