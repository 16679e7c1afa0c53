"""Pretrained language models, whole: gradients and ten steps of AdamW are PyTorch's."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import agreement  # noqa: F401  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from made_gguf import minilm, smollm2
from whet.llm import Task, causal_lm_loss
from whet.models import from_gguf

t.logging.set_verbosity_error()

LENGTH, RATE = 16, 1e-3
IDS = torch.randint(0, 30_000, (1, LENGTH), generator=torch.Generator().manual_seed(0))


def agrees(model: torch.nn.Module, labels: torch.Tensor, **options: Any) -> whet.Program:
    adam = torch.optim.AdamW(model.parameters(), lr=RATE)
    program = whet.compile(model, (IDS,), labels=labels, optimizer=adam, **options)
    report: Any = program.check(steps=10)
    assert report.gradients and max(report.gradients.values()) < 1e-4
    # The gradient of a key's bias is zero in exact numbers, and AdamW divides its noise by itself.
    moved = [e for n, e in report.parameters.items() if not re.search(r"\bkey\.bias$", n)]
    assert max(moved) < 1e-3
    return program


@pytest.mark.slow
@pytest.mark.parametrize("update", ["full", "sparse-2", "lora"])
def test_a_published_encoder_trains_as_in_pytorch(update: str) -> None:
    torch.manual_seed(0)
    kind = t.BertForSequenceClassification
    model = Task(kind.from_pretrained(minilm(), dtype=torch.float32), ("input_ids",)).eval()
    agrees(model, torch.tensor([1]), update=update)


@pytest.mark.slow
@pytest.mark.parametrize("update", ["sparse-2", "lora"])
def test_a_published_language_model_trains_as_in_pytorch(update: str) -> None:
    """Frozen weights are read as the file stores them; PyTorch has what they stand for."""
    model = from_gguf(smollm2(), context=LENGTH).eval()
    program = agrees(model, IDS, loss=causal_lm_loss, update=update, frozen="gguf")
    assert program.in_bytes > 75_000_000 and program.memory["frozen"] < 100_000_000
