"""A language model whose frozen weights are stored in few bits, its tied embedding once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agreement import prepared  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from stored_forms import nearest, size

WORDS, WIDE, INNER, LENGTH = 96, 64, 160, 8


class Words(nn.Module):
    """Scores with the classes where the loss wants them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(ids, use_cache=False).logits
        return logits.transpose(1, 2)


def llama() -> nn.Module:
    config = t.LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDE, intermediate_size=INNER, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        tie_word_embeddings=True, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    return prepared(Words(t.LlamaForCausalLM(config)), ids())


def ids() -> Tensor:
    return torch.randint(3, WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(0))


LAST = whet.Scheme([whet.Rule("*.layers.1.*")], name="last block")


def frozen_matrices(model: nn.Module) -> Mapping[str, nn.Parameter]:
    """Of the first block, and the embedding; the head is the same parameter."""
    named = dict(model.named_parameters())
    return {n: p for n, p in named.items() if p.ndim == 2 and ".layers.1." not in n}


@pytest.mark.parametrize("form", ["int8", "q8_0", "q4_1", "q4_0"])
def test_a_tied_head_and_the_embedding_read_one_array(form: str) -> None:
    model = llama()
    frozen = frozen_matrices(model)
    options: dict[str, Any] = dict(update=LAST, labels=ids())
    program = whet.compile(model, (ids(),), frozen=form, **options)
    plain = whet.compile(model, (ids(),), **options)
    shapes = [tuple(p.shape) for p in frozen.values()]
    assert (WORDS, WIDE) in shapes and len(shapes) == 8
    assert program.in_bytes == sum(size(form, *shape) for shape in shapes)
    saved = sum(4 * outputs * inputs for outputs, inputs in shapes) - program.in_bytes
    assert plain.memory["frozen"] - program.memory["frozen"] == saved
    assert program.memory["ram"] <= plain.memory["ram"] and program.not_narrow == 0
    names = [node.op.name for node in program.entries["train_step"].nodes]
    assert names.count("take_stored") == 1 and names.count("linear_stored") == 8
    assert names.count("linear_stored_dx") == 1, "of the head"
    assert program.check(steps=3)
    with torch.no_grad():
        for p in frozen.values():
            p.copy_(torch.from_numpy(nearest(form, p.numpy())))
        right = model(ids()).numpy()
    np.testing.assert_allclose(program.load().predict(ids()), right, rtol=1e-4, atol=1e-5)
