"""Language models with a vocabulary large enough that its scores are never made whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whet
from agreement import prepared  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

t.logging.set_verbosity_error()

WORDS, LENGTH = 4100, 17
SIZES: dict[str, Any] = dict(
    vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=32, pad_token_id=0,
)  # fmt: skip


class Scores(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=ids).logits
        return scores


def llama() -> nn.Module:
    config = t.LlamaConfig(**SIZES, num_key_value_heads=1, use_cache=False)
    return t.LlamaForCausalLM(config)


def bert() -> nn.Module:
    return t.BertForMaskedLM(t.BertConfig(**SIZES))


def next_word(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores[:, :-1].reshape(-1, WORDS), labels[:, 1:].reshape(-1))


def masked_words(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.view(-1, WORDS), labels.view(-1))


LAST = [whet.Rule("*layer*.1.*")]


@pytest.mark.parametrize(("make", "loss"), [(llama, next_word), (bert, masked_words)])
def test_gradients_of_a_language_model_are_those_of_pytorch(make: Any, loss: Any) -> None:
    """Its last block trains; head and embedding are frozen, and most positions have no label."""
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    ids, labels = (torch.randint(1, WORDS, (2, LENGTH), generator=g) for _ in range(2))
    labels[torch.rand(2, LENGTH, generator=g) < 0.7] = -100
    model = prepared(Scores(make()), ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    program = whet.compile(
        model, (ids,), loss=loss, labels=labels, optimizer=optimizer, update=whet.Scheme(LAST)
    )
    step = program.entries["train_step"]
    sizes = [v.type.elements for node in step.nodes for v in node.outs]
    assert max(sizes) < 2 * (LENGTH - 1) * WORDS
    assert "linear_cross_entropy" in {node.op.name for node in step.nodes}
    report = program.check()
    assert report.gradients and max(report.gradients.values()) < 1e-4
