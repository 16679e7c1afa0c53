"""Attention, and the rotation of queries and keys by their positions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, row


@row("RotaryEmbedding")
def rotary(c: Call, x: Tensor, cos: Tensor, sin: Tensor, ids: Tensor | None = None) -> Tensor:
    flat = x.ndim == 3
    if flat:
        heads = c.attr("num_heads")
        x = x.reshape(x.shape[0], x.shape[1], heads, -1)
    else:
        x = x.transpose(1, 2)
    width = c.attr("rotary_embedding_dim", 0) or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if ids is not None:
        cos, sin = F.embedding(ids.long(), cos), F.embedding(ids.long(), sin)
    cos, sin = (t[..., : width // 2].unsqueeze(2) for t in (cos, sin))
    if c.flag("interleaved"):
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    y = torch.cat([turned, rest], dim=-1)
    return y.flatten(2) if flat else y.transpose(1, 2)


def by_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, heads, length, width]"""
    if x.ndim == 4:
        return x
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


@row("Attention")
def attention(
    c: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_k: Tensor | None = None, past_v: Tensor | None = None, lengths: Tensor | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    flat = q.ndim == 3
    q = by_heads(q, c.attr("q_num_heads"))
    k, v = (by_heads(x, c.attr("kv_num_heads")) for x in (k, v))
    before = 0
    if past_k is not None and past_v is not None:
        before = past_k.shape[2]
        k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
    present = k, v
    each = q.shape[1] // k.shape[1]
    if each > 1:
        k, v = k.repeat_interleave(each, dim=1), v.repeat_interleave(each, dim=1)
    scale = c.attr("scale") or 1 / math.sqrt(q.shape[-1])
    hidden = bias_of(c, q, k, mask, before, lengths)
    plain = not c.attr("softcap", 0.0) and not c.wants(3)
    if plain and lengths is None:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden, scale=scale)
        scores = None
    else:
        y, scores = spelled(c, q, k, v, hidden, scale)
    y = y.transpose(1, 2).flatten(2) if flat else y
    return y, *present, scores


def bias_of(
    c: Call, q: Tensor, k: Tensor, mask: Tensor | None, before: int, lengths: Tensor | None
) -> Tensor | None:
    """What is added to the scores: the mask, and minus infinity for keys that a query skips."""
    count, keys = q.shape[2], k.shape[2]
    found: Tensor | None = None
    if mask is not None:
        if mask.dtype == torch.bool:
            found = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -math.inf)
        else:
            found = mask.to(q.dtype)
        if found.shape[-1] < keys:
            found = F.pad(found, [0, keys - found.shape[-1]], value=-math.inf)
    own, theirs = torch.arange(count).reshape(-1, 1), torch.arange(keys).reshape(1, -1)
    outside: Tensor | None = None
    at: Any = own + before
    if lengths is not None:
        real = lengths.reshape(-1, 1, 1, 1)
        outside, at = theirs >= real, own + real - count
    left, right = c.attr("left_window_size", -1), c.attr("right_window_size", -1)
    limits = [theirs > at] if c.flag("is_causal") else []
    limits += [theirs < at - left] if left >= 0 else []
    limits += [theirs > at + right] if right >= 0 else []
    for limit in limits:
        outside = limit if outside is None else outside | limit
    if outside is None:
        return found
    bias = torch.zeros(outside.shape, dtype=q.dtype).masked_fill(outside, -math.inf)
    return bias if found is None else found + bias


def spelled(
    c: Call, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Step by step, for what PyTorch's operator does not know, or does not show."""
    root = math.sqrt(scale)
    stage, cap = c.attr("qk_matmul_output_mode", 0), c.attr("softcap", 0.0)
    scores = (q * root) @ (k * root).transpose(-1, -2)
    capped = cap * torch.tanh(scores / cap) if cap else scores
    masked = capped if bias is None else capped + bias
    weights = torch.softmax(masked, dim=-1)
    if bias is not None:  # a query that sees no key has no weights
        weights = torch.where((bias > -math.inf).any(-1, keepdim=True), weights, 0.0)
    return weights @ v, (scores, capped, masked, weights)[stage]
