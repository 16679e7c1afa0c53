"""Products and convolutions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, row


def sides(
    c: Call, sizes: list[int], kernel: list[int], strides: list[int], steps: list[int]
) -> list[tuple[int, int]]:
    """The padding before and after each axis; `auto_pad` is the older way to say it."""
    rank, auto = len(kernel), c.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = c.attr("pads") or [0] * (2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * rank
    found = []
    for size, k, stride, step in zip(sizes, kernel, strides, steps, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (k - 1) * step + 1 - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return found


def flat(pairs: list[tuple[int, int]]) -> list[int]:
    """In the order of PyTorch's pad: the last axis first."""
    return [side for pair in pairs[::-1] for side in pair]


CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@row("Conv")
def conv(c: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    rank = w.ndim - 2
    if rank not in CONVOLUTIONS:
        c.refuse(f"{rank} axes")
    strides, steps = c.attr("strides") or [1] * rank, c.attr("dilations") or [1] * rank
    pairs = sides(c, list(x.shape[2:]), list(w.shape[2:]), strides, steps)
    if all(before == after for before, after in pairs):
        padding = [before for before, _ in pairs]
    else:
        x, padding = F.pad(x, flat(pairs)), [0] * rank
    group = c.attr("group", 1)
    return CONVOLUTIONS[rank](x, w, b, strides, padding, steps, group)


@row("ConvTranspose")
def conv_transpose(c: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    rank = w.ndim - 2
    if rank not in TRANSPOSED:
        c.refuse(f"{rank} axes")
    strides, steps = c.attr("strides") or [1] * rank, c.attr("dilations") or [1] * rank
    extra = c.attr("output_padding") or [0] * rank
    kernel = list(w.shape[2:])
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[2:], strides, kernel, steps, extra, strict=True)
    ]
    pairs = transposed_sides(c, list(x.shape[2:]), full, strides)
    if all(before == after >= 0 for before, after in pairs):
        padding = [before for before, _ in pairs]
        return TRANSPOSED[rank](x, w, b, strides, padding, extra, c.attr("group", 1), steps)
    y = TRANSPOSED[rank](x, w, None, strides, 0, extra, c.attr("group", 1), steps)
    y = F.pad(y, [-side for side in flat(pairs)])
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def transposed_sides(
    c: Call, sizes: list[int], full: list[int], strides: list[int]
) -> list[tuple[int, int]]:
    """How much of the full result is cut off; what is less than 0 is added."""
    wanted, auto, rank = c.attr("output_shape"), c.attr("auto_pad", "NOTSET"), len(full)
    if auto == "VALID":
        return [(0, 0)] * rank
    if wanted is None and auto in ("NOTSET", ""):
        pads = c.attr("pads") or [0] * (2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    wanted = (wanted or [n * s for n, s in zip(sizes, strides, strict=True)])[-rank:]
    found = []
    for whole, size in zip(full, wanted, strict=True):
        total = whole - size
        less, more = total // 2, total - total // 2
        found.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return found


@row("MatMul")
def matmul(c: Call, a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@row("Gemm")
def gemm(c: Call, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    a = a.t() if c.flag("transA") else a
    if alpha == 1 and beta == 1 and (bias is None or bias.ndim == 1):
        return F.linear(a, b if c.flag("transB") else b.t(), bias)
    y = alpha * (a @ (b.t() if c.flag("transB") else b))
    return y if bias is None else y + beta * bias


@row("Einsum")
def einsum(c: Call, *values: Tensor) -> Tensor:
    return torch.einsum(c.attr("equation"), *values)


@row("Det")
def det(c: Call, x: Tensor) -> Tensor:
    return torch.linalg.det(x)


@row("Col2Im", known=(1, 2))
def col2im(c: Call, x: Tensor, image, block) -> Tensor:  # type: ignore[no-untyped-def]
    """Every column is added where its block was."""
    sizes, kernel = [int(n) for n in image], [int(n) for n in block]
    rank = len(sizes)
    steps, strides = c.attr("dilations") or [1] * rank, c.attr("strides") or [1] * rank
    pads = c.attr("pads") or [0] * (2 * rank)
    index = torch.zeros(1, dtype=torch.int64)
    lines = torch.zeros(1, 1, dtype=torch.int64)
    whole = [n + a + b for n, a, b in zip(sizes, pads[:rank], pads[rank:], strict=True)]
    for n, k, d, s in zip(whole, kernel, steps, strides, strict=True):
        starts = torch.arange(0, n - (k - 1) * d, s)
        at = torch.arange(k)[:, None] * d + starts[None, :]
        lines = (lines[:, None, :, None] * n + at[None, :, None, :]).reshape(lines.shape[0] * k, -1)
    index = lines.reshape(-1)
    batch, rows, _ = x.shape
    channels = rows // lines.shape[0]
    flat_x = x.reshape(batch, channels, -1)
    y = torch.zeros(batch, channels, int(torch.Size(whole).numel()), dtype=x.dtype)
    y = y.index_add(2, index, flat_x).reshape(batch, channels, *whole)
    for axis, (n, before) in enumerate(zip(sizes, pads[:rank], strict=True)):
        y = y.narrow(axis + 2, before, n)
    return y
