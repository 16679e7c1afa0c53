"""Models of timm and transformers, small and with random weights, and their ONNX files."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.llm.hugging import LIBRARIES

assert LIBRARIES is not None  # timm and transformers cannot be imported without

WORDS, LENGTH = 97, 16
PICTURES = {  # of timm, with the side of their pictures
    "lcnet_035": 64, "lcnet_050": 64, "mobilenetv3_small_050": 64, "mnasnet_small": 64,
    "tinynet_e": 64, "repghostnet_050": 64, "fasternet_t0": 64, "starnet_s050": 64,
    "mobilevit_xxs": 64, "test_vit": 64, "test_vit2": 64, "test_resnet": 64,
    "test_efficientnet": 64, "test_efficientnet_gn": 64, "test_efficientnet_ln": 64,
    "test_byobnet": 64, "test_mambaout": 64, "test_convnext": 64, "test_convnext2": 64,
    "resnet10t": 64, "cait_xxs24_224": 64,
}  # fmt: skip
TEXT = dict(
    vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=64, max_position_embeddings=64, num_labels=3, pad_token_id=0,
)  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {  # of transformers, with what its configuration calls else
    "Bert": {}, "Roberta": {}, "Electra": {"embedding_size": 32}, "Albert": {"embedding_size": 16},
    "DistilBert": dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "GPT2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "Llama": dict(num_key_value_heads=2), "Qwen2": dict(num_key_value_heads=2),
    "Mistral": dict(num_key_value_heads=2), "GPTNeoX": {},
}  # fmt: skip


class Classes(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        return found


def picture_model(name: str) -> tuple[nn.Module, Tensor]:
    import timm

    side = PICTURES[name]
    made: nn.Module | None = None
    for options in ({"img_size": side}, {}):
        with contextlib.suppress(TypeError):  # it takes pictures of any size, so it takes no size
            made = made or timm.create_model(name, num_classes=10, **options)
    assert made is not None
    return made, torch.randn(2, 3, side, side)


def text_model(name: str) -> tuple[nn.Module, Tensor]:
    import transformers

    transformers.logging.set_verbosity_error()
    config = getattr(transformers, f"{name}Config")(**(TEXT | OTHERS[name] | {"use_cache": False}))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    return Classes(model), torch.randint(1, WORDS, (2, LENGTH))


def build(name: str) -> tuple[nn.Module, Tensor]:
    """The model, with numbers that make a comparison of gradients mean something, and inputs."""
    torch.manual_seed(0)
    make: Callable[[str], tuple[nn.Module, Tensor]]
    make = picture_model if name in PICTURES else text_model
    model, x = make(name)
    for parameter in model.parameters():
        if parameter.ndim <= 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
        elif parameter.ndim == 2 and parameter.std() < 0.03:
            parameter.data *= 5
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()):
        model.train()
        with torch.no_grad():
            for _ in range(4):
                model(torch.randn(8, *x.shape[1:]))
    return model.eval(), x


def export(model: nn.Module, x: Tensor, path: Path, newer: bool) -> None:
    """By the exporter that traces TorchScript, or by the newer one, which needs onnxscript."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if newer:
            torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
        else:
            torch.onnx.export(model, (x,), path, dynamo=False, opset_version=17)
