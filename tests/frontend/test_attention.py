"""Whole models attend through one operator, whatever their spelling, and hold no weights of it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whet
from agreement import agreement, prepared  # first: transformers cannot be imported before it
from whet.ir import Node

import transformers as t  # isort: skip

BATCH, LENGTH, HEADS = 3, 37, 4  # a product of these is no other size in the models below
TEXT = dict(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=HEADS,
    intermediate_size=64, max_position_embeddings=64, num_labels=3, pad_token_id=0,
)  # fmt: skip


def words(spelling: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return language_model(
        t.LlamaConfig(**TEXT, num_key_value_heads=2), t.LlamaForCausalLM, spelling
    )


def gpt(spelling: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = t.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=HEADS, n_positions=64)
    return language_model(config, t.GPT2LMHeadModel, spelling)


class Words(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(ids, use_cache=False).logits
        return logits.transpose(1, 2)


def language_model(config: Any, kind: Any, spelling: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    config._attn_implementation = spelling
    return Words(kind(config)), (torch.randint(3, 50, (BATCH, LENGTH)),)


def encoder(spelling: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """With a padding mask as an input."""
    model = t.BertForSequenceClassification(t.BertConfig(**TEXT, attn_implementation=spelling))
    padding = torch.arange(LENGTH) < torch.tensor([[LENGTH], [20], [1]])
    return model, (torch.randint(3, 50, (BATCH, LENGTH)), padding.long())


def pictures(spelling: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    config = t.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=64,
        image_size=24, patch_size=4, num_labels=5, attn_implementation=spelling,
    )  # fmt: skip
    return t.ViTForImageClassification(config), (torch.randn(BATCH, 3, 24, 24),)


def attentions(program: whet.Program) -> list[Node]:
    return [n for n in program.entries["train_step"].nodes if n.op.name == "attention"]


@pytest.mark.parametrize("spelling", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [words, gpt, encoder, pictures])
def test_models_attend_without_holding_weights(make: Any, spelling: str) -> None:
    torch.manual_seed(0)
    model, inputs = make(spelling)
    program = whet.compile(prepared(model, *inputs), inputs)
    program.check(steps=3)
    length = 37  # of the pictures, too: 36 patches and a class token
    weights = BATCH * HEADS * length * length
    for name, graph in program.entries.items():
        count = Counter(node.op.name for node in graph.nodes)
        assert count["attention"] == 2, name
        assert count["softmax"] == count["transpose"] == 0, "neither weights nor copies"
        values = [v for node in graph.nodes for v in (*node.ins, *node.outs)]
        assert all(v.type.elements < weights for v in values), name
        assert all(node.op.workspace(node) < weights for node in graph.nodes), name
    for node in attentions(program):
        q, k, *_, last = node.ins
        assert node.attrs.causal == (make in (words, gpt))
        assert q.shape[2] == HEADS and k.shape[2] == (2 if make is words else HEADS)
        assert (len(node.ins) == 4) == (make is encoder)
        assert make is not encoder or last.shape == (BATCH, 1, 1, LENGTH)


class Attends(nn.Module):
    """A projection, and attention in a way that is given."""

    def __init__(self, attend: Any, width: int = 8) -> None:
        super().__init__()
        self.attend, self.layer = attend, nn.Linear(width, 3 * width)
        self.bias = nn.Parameter(torch.randn(1, 2, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.layer(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        y: Tensor = self.attend(self, q, k, v).transpose(1, 2).flatten(2)
        return y


def relative(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, m.bias)


def spelled(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / 2 + m.bias).softmax(-1) @ v


def seen(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The weights are read twice."""
    weights = (q @ k.mT).softmax(-1)
    return weights @ v + weights.mean()


def blind(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A query sees no key: all alike then, by numbers without a gradient."""
    hidden = torch.zeros(5, 5, dtype=torch.bool)
    hidden[2] = True
    return (q @ k.mT).masked_fill(hidden, torch.finfo(torch.float32).min).softmax(-1) @ v


@pytest.mark.parametrize("attend", [relative, spelled, seen, blind])
def test_what_the_operator_cannot_do_stays_a_composition(attend: Any) -> None:
    """A mask that trains, weights that something else reads, and scores that are replaced."""
    torch.manual_seed(0)
    report = agreement(Attends(attend), torch.randn(2, 5, 8), loss=nn.MSELoss())
    assert report is not None


def divided(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


def queries_scaled(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q * 0.3) @ k.mT).softmax(-1) @ v


def filled(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    return (q @ k.mT * 0.3).masked_fill(later, -math.inf).softmax(-1) @ v


def stacked(m: Attends, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As nn.MultiheadAttention does it when it returns the weights."""
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    mask = torch.zeros(1, 5, 5)
    mask[0, 2, 3:] = -math.inf
    return (torch.baddbmm(mask, q * 0.3, k.mT).softmax(-1) @ v).unflatten(0, (-1, 2))


@pytest.mark.parametrize("attend", [divided, queries_scaled, filled, stacked])
def test_other_spellings_are_recognised(attend: Any) -> None:
    torch.manual_seed(0)
    model, x = Attends(attend), torch.randn(2, 5, 8)
    del model.bias
    program = whet.compile(model, (x,), loss=nn.MSELoss(), accumulate=True)
    program.check(steps=3)
    (node,) = attentions(program)
    assert node.attrs.causal == (attend is filled)
    assert (len(node.ins) == 4) == (attend is stacked)


def test_dropout_of_weights_stays_a_composition() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1).train()
    program = whet.compile(layer, (torch.randn(2, 5, 8),), loss=nn.MSELoss())
    assert not attentions(program)
    assert "attention" in [n.op.name for n in program.entries["predict"].nodes], "without dropout"


def test_heads_wider_than_the_operator_takes() -> None:
    torch.manual_seed(0)
    model, x = Attends(divided, 520), torch.randn(1, 5, 520)
    del model.bias
    program = whet.compile(model, (x,), loss=nn.MSELoss())
    assert not attentions(program)
