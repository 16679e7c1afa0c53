"""Normalisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, row
from .moving import positive
from .reducing import root


@row("BatchNormalization")
def batch_norm(
    c: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> tuple[Tensor, ...] | Tensor:
    """By the statistics in the file; by those of the batch while the model trains."""
    if c.version < 9 and not c.flag("spatial", 1):
        c.refuse("statistics for every element (spatial=0)")
    eps, momentum = c.attr("epsilon", 1e-5), c.attr("momentum", 0.9)
    if c.flag("training_mode"):
        axes = [i for i in range(x.ndim) if i != 1]
        now, spread = x.mean(axes), x.var(axes, correction=0)
        y = F.batch_norm(x, None, None, scale, bias, True, 0.0, eps)
        mixed = [old * momentum + new * (1 - momentum) for old, new in ((mean, now), (var, spread))]
        return (y, *mixed)
    if any(c.wants(i) for i in range(1, len(c.node.outputs))):
        c.refuse("outputs of a training graph of an old operator set")
    return F.batch_norm(x, mean, var, scale, bias, c.training, 1 - momentum, eps)


@row("InstanceNormalization")
def instance_norm(c: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=c.attr("epsilon", 1e-5))


@row("LayerNormalization")
def layer_norm(
    c: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...] | Tensor:
    axis, eps = positive(c.attr("axis", -1), x.ndim), c.attr("epsilon", 1e-5)
    axes, sizes = list(range(axis, x.ndim)), x.shape[axis:]
    if scale.shape == sizes and (bias is None or bias.shape == sizes):
        y = F.layer_norm(x, sizes, scale, bias, eps)
    else:
        y = F.layer_norm(x, sizes, eps=eps) * scale
        y = y if bias is None else y + bias
    if not c.wants(1) and not c.wants(2):
        return y
    spread = x.var(axes, correction=0, keepdim=True)
    return y, x.mean(axes, keepdim=True), (spread + eps).rsqrt()


@row("RMSNormalization")
def rms_norm(c: Call, x: Tensor, scale: Tensor) -> Tensor:
    axis, eps = positive(c.attr("axis", -1), x.ndim), c.attr("epsilon", 1e-5)
    if scale.shape == x.shape[axis:]:
        return F.rms_norm(x, x.shape[axis:], scale, eps)
    mean = (x * x).mean(list(range(axis, x.ndim)), keepdim=True)
    return x * (mean + eps).rsqrt() * scale


@row("GroupNormalization")
def group_norm(c: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Up to opset 20, scale and bias have one number for each group."""
    groups, eps = c.attr("num_groups"), c.attr("epsilon", 1e-5)
    if c.version < 21:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, groups, scale, bias, eps)


@row("LpNormalization")
def lp_norm(c: Call, x: Tensor) -> Tensor:
    p, axis = c.attr("p", 2), c.attr("axis", -1)
    norm = x.abs().sum(axis, keepdim=True) if p == 1 else root((x * x).sum(axis, keepdim=True))
    return torch.where(norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, 1.0, norm))


@row("LRN")
def lrn(c: Call, x: Tensor) -> Tensor:
    size, squares = c.attr("size"), x * x
    before, after = (size - 1) // 2, math.ceil((size - 1) / 2)
    sides = [0, 0] * (x.ndim - 2) + [before, after]
    padded = F.pad(squares, sides)
    total = sum(
        (padded.narrow(1, i, x.shape[1]) for i in range(1, size)), padded.narrow(1, 0, x.shape[1])
    )
    scale = c.attr("alpha", 1e-4) / size
    return x / (c.attr("bias", 1.0) + scale * total).pow(c.attr("beta", 0.75))


@row("MeanVarianceNormalization")
def mvn(c: Call, x: Tensor) -> Tensor:
    axes = c.attr("axes") or [0, 2, 3]
    centred = x - x.mean(axes, keepdim=True)
    spread = (centred * centred).mean(axes, keepdim=True)  # never below 0, as E[x²] - E[x]² may be
    return centred / (root(spread) + 1e-9)
