"""What the step study trains: models, a batch of each, and their losses.

`build` takes the file of SmolLM2, or None for random weights in the same sizes. Every model has one
input, so that all tokens of a sequence count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whet.llm import causal_lm_loss
from whet.models import Llama, LlamaConfig, from_gguf
from whet.ops._blocks import decoded, encoded

SMOLLM2 = LlamaConfig(
    vocabulary=49152, width=576, hidden=1536, blocks=30, heads=9, kv_heads=3, head=64,
    theta=1e5, tied=True,
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    title: str
    length: int
    build: Callable[[int, Path | None], nn.Module]
    classes: int = 0  # of sequences or pictures; 0 for next words
    vocabulary: int = 0  # 0 for pictures
    labelled: int = 0  # of the tokens only the last so many have a label, 0 for all
    targets: tuple[str, ...] = ("q_proj", "v_proj")  # queries and values, for PyTorch's LoRA
    small: bool = False  # one of the models with random weights, which are measured in fewer ways
    trial: bool = False  # to try the study out; not a part of it

    def batch(self) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(1)
        if not self.vocabulary:
            return torch.randn(1, 3, 224, 224, generator=g), torch.tensor([1])
        ids = torch.randint(self.vocabulary, (1, self.length), generator=g)
        if self.classes:
            return ids, torch.tensor([1])
        labels = ids.clone()
        if self.labelled:
            labels[:, : self.length - self.labelled] = -100
        return ids, labels

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        return nn.functional.cross_entropy if self.classes else causal_lm_loss

    def model(self, gguf: Path | None) -> nn.Module:
        torch.manual_seed(0)
        return self.build(self.length, gguf).eval()


def smollm2(length: int, gguf: Path | None) -> nn.Module:
    if gguf is not None:
        return from_gguf(gguf, context=length)
    return llama(replace(SMOLLM2, context=length))


def trial(length: int, gguf: Path | None) -> nn.Module:
    """Three blocks, and a small vocabulary."""
    return llama(replace(SMOLLM2, context=length, blocks=3, vocabulary=1024))


def llama(config: LlamaConfig) -> nn.Module:
    """Random matrices made up of the blocks of the file: Q4_1, and Q8_0 for the embedding."""
    model = Llama(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                form = "q8_0" if "embed" in name else "q4_1"
                data = encoded(form, (0.02 * torch.randn_like(parameter)).numpy())
                assert data is not None
                parameter.copy_(torch.from_numpy(decoded(form, data, tuple(parameter.shape))))
    return model


def hugging(kind: str, task: str, names: tuple[str, ...], **sizes: Any) -> Callable[..., nn.Module]:
    def build(length: int, gguf: Path | None) -> nn.Module:
        from benchmarks.llm.hugging import transformers
        from whet.llm import Task

        config = getattr(transformers, f"{kind}Config")(**sizes)
        return Task(getattr(transformers, kind + task)(config), names)

    return build


IDS = ("input_ids",)
SEQUENCE = "ForSequenceClassification"
MINILM = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
TINY = dict(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768)

WORKLOADS = {
    "smollm2-128": Workload("SmolLM2-135M, 128 tokens", 128, smollm2, 0, 49152),
    "smollm2-512": Workload("SmolLM2-135M, 512 tokens", 512, smollm2, 0, 49152),
    "smollm2-128-32": Workload(
        "SmolLM2-135M, 128 tokens, 32 of them labelled", 128, smollm2, 0, 49152, 32
    ),
    "distilbert": Workload(
        "DistilBERT, 128 tokens", 128, hugging("DistilBert", SEQUENCE, IDS), 2, 30522,
        targets=("q_lin", "v_lin"), small=True,
    ),
    "bert-base": Workload(
        "BERT-base, 128 tokens", 128, hugging("Bert", SEQUENCE, IDS), 2, 30522,
        targets=("query", "value"), small=True,
    ),
    "minilm": Workload(
        "MiniLM-L6, 128 tokens", 128, hugging("Bert", SEQUENCE, IDS, **MINILM), 2, 30522,
        targets=("query", "value"), small=True,
    ),
    "vit-tiny": Workload(
        "ViT-tiny, 224 x 224", 197,
        hugging("ViT", "ForImageClassification", ("pixel_values",), num_labels=10, **TINY), 10,
        targets=("query", "value"), small=True,
    ),
    "gpt2": Workload(
        "GPT-2, 128 tokens", 128, hugging("GPT2", "LMHeadModel", IDS, use_cache=False), 0, 50257,
        targets=("c_attn",), small=True,
    ),
    "trial": Workload("Three blocks, 32 tokens", 32, trial, 0, 1024, trial=True),
}  # fmt: skip
