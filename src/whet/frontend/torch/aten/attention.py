"""Scaled dot-product attention, composed of matrix products and a softmax."""

from __future__ import annotations

import math

import torch

from ....ir import DType
from ....ops.binary import Add, Mul
from ...model import Tensor
from ..importer import Importer, Operand, aten
from .convolution import matmul
from .elementwise import binary, kind, where
from .integers import any_
from .moving import expand, transpose, unsqueeze
from .reducing import dropout, softmax

LOWEST = torch.finfo(
    torch.float32
).min  # the softmax weight of this score is exactly 0 beside any other


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
    weights = softmax(m, scores, -1) if mask is None else masked_softmax(m, scores, mask)
    return matmul(m, dropout(m, weights, dropout_p), value)


def masked_softmax(m: Importer, scores: Tensor, mask: Operand) -> Tensor:
    """A query that may attend to nothing gets weights of 0, as in PyTorch."""
    if isinstance(mask, torch.Tensor):
        nothing = mask.all() if mask.dtype == torch.bool else not mask.any()
        if nothing:
            return softmax(m, scores, -1)
    if kind(mask) is DType.F32:
        return additive_softmax(m, scores, mask)
    if isinstance(mask, torch.Tensor) and mask.any(-1).all():
        return softmax(m, binary(m, Add, scores, (~mask).double() * LOWEST), -1)
    weights = softmax(m, where(m, mask, scores, LOWEST), -1)
    return where(m, any_(m, m.tensor(mask), -1, keepdim=True), weights, 0.0)


def additive_softmax(m: Importer, scores: Tensor, mask: Operand) -> Tensor:
    """An additive mask; a row of -inf allows nothing, like a row of False."""
    if isinstance(mask, torch.Tensor):
        allowed = mask > -math.inf
        if allowed.any(-1).all():
            return softmax(m, binary(m, Add, scores, mask), -1)
        finite = mask.masked_fill(~allowed, 0.0)
        return masked_softmax(m, binary(m, Add, scores, finite), allowed)
    return softmax(m, binary(m, Add, scores, mask), -1)


def repeat_heads(m: Importer, x: Tensor, heads: int) -> Tensor:
    """Grouped-query attention: every key/value head serves several query heads."""
    *lead, groups, length, width = x.shape
    wide = unsqueeze(m, x, x.rank - 2)
    y = expand(m, wide, (*lead, groups, heads // groups, length, width))
    return m.arranger.view(y, (*lead, heads, length, width))
