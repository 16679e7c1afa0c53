"""Two-layer transformers of the architectures that people fine-tune, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from agreement import prepared  # first: transformers cannot be imported before it

import timm  # isort: skip
import transformers as t  # isort: skip

t.logging.set_verbosity_error()

WORDS, LENGTH = 29, 6
TEXT = dict(
    vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=16, num_labels=3, pad_token_id=0,
)  # fmt: skip
DISTIL = dict(
    vocab_size=WORDS, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=16,
    num_labels=3, pad_token_id=0,
)  # fmt: skip
GPT = dict(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2, n_positions=16, num_labels=3)
PICTURE = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    image_size=16, patch_size=8, num_labels=3,
)  # fmt: skip


class Scores(nn.Module):
    """A language model whose scores have the classes where the loss wants them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=ids).logits
        return scores.transpose(1, 2)


def classifier(kind: str, options: dict[str, Any] = TEXT, **more: Any) -> nn.Module:
    config = getattr(t, f"{kind}Config")(**options | {"use_cache": False} | more)
    model: nn.Module = getattr(t, f"{kind}ForSequenceClassification")(config)
    return model


def language(kind: str, options: dict[str, Any] = TEXT, **more: Any) -> nn.Module:
    config = getattr(t, f"{kind}Config")(**options | {"use_cache": False} | more)
    head = {"Bert": "ForMaskedLM", "GPT2": "LMHeadModel"}.get(kind, "ForCausalLM")
    return Scores(getattr(t, kind + head)(config))


def vit() -> nn.Module:
    return t.ViTForImageClassification(t.ViTConfig(**PICTURE))


def timm_vit() -> nn.Module:
    size = dict(img_size=32, patch_size=16, embed_dim=18, depth=2, num_heads=3, num_classes=3)
    model: nn.Module = timm.create_model("vit_tiny_patch16_224", **size)
    return model


GROUPED = dict(num_key_value_heads=1)
BUILD: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: classifier("Bert"),  # MiniLM is one
    "roberta": lambda: classifier("Roberta"),
    "distilbert": lambda: classifier("DistilBert", DISTIL),
    "vit": vit,
    "vit of timm": timm_vit,
    "gpt2": lambda: language("GPT2", GPT),
    "gpt2 classifier": lambda: classifier("GPT2", GPT, pad_token_id=0),
    "llama": lambda: language("Llama", **GROUPED, tie_word_embeddings=False),
    "smollm2": lambda: language("Llama", **GROUPED, tie_word_embeddings=True),
    "qwen2": lambda: language("Qwen2", **GROUPED, tie_word_embeddings=False),
    "bert for masked words": lambda: language("Bert"),
}


def transformer(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model, with numbers that make a comparison of gradients mean something, and inputs."""
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    inputs: tuple[Tensor, ...] = (torch.randint(1, WORDS, (2, LENGTH), generator=random),)
    if name.startswith("vit"):
        side = 32 if "timm" in name else 16
        inputs = (torch.randn(2, 3, side, side, generator=random),)
    return prepared(BUILD[name](), *inputs), inputs
