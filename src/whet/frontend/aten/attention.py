"""Scaled dot-product attention, made of matrix products and a softmax."""

from __future__ import annotations

import math

import torch

from ...ops.binary import Add, Mul
from ..importer import Importer, Operand, aten
from ..tensor import Tensor
from .convolution import matmul
from .elementwise import binary, where
from .moving import expand, transpose, unsqueeze
from .reducing import dropout, softmax


@aten("scaled_dot_product_attention.default")
def attention(
    m: Importer, q: Operand, k: Operand, v: Operand, mask: Operand | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    query, key, value = m.tensor(q), m.tensor(k), m.tensor(v)
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (repeat_heads(m, t, query.shape[-3]) for t in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = matmul(m, binary(m, Mul, query, factor), transpose(m, key, -2, -1))
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    if isinstance(mask, torch.Tensor) and not mask.any():
        mask = None
    if mask is not None:
        scores = add_mask(m, scores, mask)
    weights = dropout(m, softmax(m, scores, -1), dropout_p)
    return matmul(m, weights, value)


def add_mask(m: Importer, scores: Tensor, mask: Operand) -> Tensor:
    if isinstance(mask, Tensor) and mask.dtype.label == "u8":
        return where(m, mask, scores, -math.inf)
    return binary(m, Add, scores, mask)


def repeat_heads(m: Importer, x: Tensor, heads: int) -> Tensor:
    """Grouped-query attention: every key/value head serves several query heads."""
    *lead, groups, length, width = x.shape
    wide = unsqueeze(m, x, x.rank - 2)
    y = expand(m, wide, (*lead, groups, heads // groups, length, width))
    return m.arranger.view(y, (*lead, heads, length, width))
