"""The Llama architecture: SmolLM, Llama, Mistral and, with biases, Qwen2 (arXiv:2302.13971).

Parameters are called as in Hugging Face's LlamaForCausalLM and Qwen2ForCausalLM, so a state dict
of theirs loads here and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import FrontendError


@dataclass(frozen=True)
class LlamaConfig:
    vocabulary: int
    width: int
    hidden: int  # of the feed-forward layers
    blocks: int
    heads: int
    kv_heads: int  # key/value heads; several query heads share one
    head: int  # numbers in a head
    context: int = 2048  # the longest sequence
    eps: float = 1e-5
    theta: float = 10_000.0
    qkv_bias: bool = False
    output_bias: bool = False
    tied: bool = False  # the head's weight is that of the embedding
    slower: tuple[float, ...] = ()  # what the frequency of each pair of a head is divided by


def rotary_tables(config: LlamaConfig) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position * theta^(-2i / head), [context, head], the pairs twice."""
    powers = np.arange(0, config.head, 2, dtype=np.float32) / np.float32(config.head)
    inverse = (1.0 / np.float32(config.theta) ** powers).astype(np.float32)
    if config.slower:
        inverse /= np.array(config.slower, np.float32)
    angles = np.outer(np.arange(config.context, dtype=np.float32), inverse)
    angles = np.concatenate([angles, angles], axis=1)
    return torch.from_numpy(np.cos(angles)), torch.from_numpy(np.sin(angles))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x[i], x[i + head / 2]) of every position."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    """Causal attention; queries and keys are rotated by their positions."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head = config.head
        inner, shared = config.heads * config.head, config.kv_heads * config.head
        self.q_proj = nn.Linear(config.width, inner, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.width, shared, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.width, shared, bias=config.qkv_bias)
        self.o_proj = nn.Linear(inner, config.width, bias=config.output_bias)
        self.grouped = config.heads != config.kv_heads

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.head).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        y = self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))
        return y


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))"""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return x


class Norm(nn.Module):
    """x / rms(x) * weight, over the last axis"""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Block(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.width, config.eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(config.width, config.eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return x


class Decoder(nn.Module):
    """The model without its head: ids [batch, length] to vectors [batch, length, width]."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = Norm(config.width, config.eps)
        for name, table in zip(("cos", "sin"), rotary_tables(config), strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        length, longest = ids.shape[-1], len(self.cos)
        if length > longest:
            raise FrontendError(
                f"a sequence has {length} tokens, the model takes up to {longest}",
                try_="shorter sequences, or a larger context when the model is made",
            )
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        x = self.norm(x)
        return x


class Llama(nn.Module):
    """A language model: ids [batch, length] to scores [batch, length, vocabulary]."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.lm_head(self.model(ids))
        return x
