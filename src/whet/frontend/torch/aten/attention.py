"""Scaled dot-product attention: one operator, or what that cannot do as matrix products and a
softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import DType, Role
from ....ops.attention import WIDEST, Attention
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


# As the operator wants queries, keys and values stored: what a projection gives, without a copy.
ROWS = (0, 2, 1, 3)


@aten("scaled_dot_product_attention.default")
def attention(
    m: Importer, q: Operand, k: Operand, v: Operand, mask: Operand | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    query, key, value = m.tensor(q), m.tensor(k), m.tensor(v)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    if dropout_p == 0 and fits(query, key, value, enable_gqa) and not trains(m, mask):
        return fused(m, (query, key, value), mask, scale=factor, causal=bool(is_causal))
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (repeat_heads(m, t, query.shape[-3]) for t in (key, value))
    scores = matmul(m, binary(m, Mul, query, factor), transpose(m, key, -2, -1))
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = softmax(m, scores, -1) if mask is None else masked_softmax(m, scores, mask)
    return matmul(m, dropout(m, weights, dropout_p), value)


# As one operator ------------------------------------------------------------------------------


def fits(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> bool:
    """Whether the operator can do it."""
    if not q.rank == k.rank == v.rank or q.rank > 4 or max(q.shape[-1], v.shape[-1]) > WIDEST:
        return False
    (*batch, heads), (*batch_k, groups) = ((1, 1, *t.shape[:-2])[-2:] for t in (q, k))
    same = batch == batch_k and k.shape[:-2] == v.shape[:-2]
    return same and (heads == groups or groups == 1 or (grouped and heads % groups == 0))


def trains(m: Importer, mask: Operand | None) -> bool:
    """Whether the mask may need a gradient: it is made from parameters."""
    if not isinstance(mask, Tensor):
        return False
    made_from = {mask.value}
    for node in reversed(m.b.nodes):
        if made_from.intersection(node.outs):
            made_from.update(v for v in node.ins if v.type.dtype is DType.F32)
    return any(v.role is Role.PARAM and v.type.dtype is DType.F32 for v in made_from)


def fused(
    m: Importer, operands: tuple[Tensor, Tensor, Tensor], mask: Operand | None, **attrs: Any
) -> Tensor:
    q, k, v = operands
    values = [m.arranger.arrange(m.arranger.view(t, with_heads(t.shape)), ROWS) for t in operands]
    if mask is not None:
        added = additive(m, mask)
        added = m.arranger.view(added, (1,) * (q.rank - added.rank) + added.shape)
        added = expand(m, added, (*added.shape[:-1], k.shape[-2]))
        values.append(m.plain(m.arranger.view(added, with_heads(added.shape))))
    y, *_ = m.b.emit_all(Attention, *values, name=m.name, **attrs)
    return m.arranger.view(Tensor(y, ROWS), (*q.shape[:-1], v.shape[-1]))


def with_heads(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[batch, heads, ...] where some have been left out; the first of three axes is the batch."""
    return (*shape[:-2], *(1,) * (4 - len(shape)), *shape[-2:])


def additive(m: Importer, mask: Operand) -> Tensor:
    if isinstance(mask, torch.Tensor):
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return m.tensor(mask)
    assert isinstance(mask, Tensor)
    return mask if mask.dtype is DType.F32 else where(m, mask, 0.0, -math.inf)


# As a composition -----------------------------------------------------------------------------


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
