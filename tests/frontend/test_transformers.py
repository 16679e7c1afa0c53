"""Tiny configurations of the models in transformers: gradients and ten steps equal PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agreement import agreement, prepared  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

t.logging.set_verbosity_error()

WORDS, LENGTH = 99, 12
TEXT = dict(
    vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=64, max_position_embeddings=64, num_labels=3, pad_token_id=0,
)  # fmt: skip
GPT = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)
FEW_HEADS = dict(num_key_value_heads=2)
VISION = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    image_size=32, patch_size=8, num_labels=5,
)  # fmt: skip
STAGES = dict(
    hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4],
    num_labels=5, image_size=64,
)  # fmt: skip
WINDOWS = dict(
    image_size=32, patch_size=2, embed_dim=16, depths=[2, 1], num_heads=[2, 2], window_size=4,
    num_labels=5,
)  # fmt: skip
T5 = dict(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
BART = dict(
    vocab_size=WORDS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
)  # fmt: skip
SOUND = dict(
    vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_labels=3,
    intermediate_size=64, conv_dim=[8, 8], conv_stride=[4, 4], conv_kernel=[8, 8],
    num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
    mask_time_prob=0.0, layerdrop=0.0,
)  # fmt: skip


class Words(nn.Module):
    """A language model whose scores have the classes where the loss wants them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *ids: Tensor) -> Tensor:
        names = ("input_ids", "decoder_input_ids")
        output = self.model(**dict(zip(names, ids, strict=False)), use_cache=False)
        return output.logits.transpose(1, 2)


class Hidden(nn.Module):
    """A model without a head: the mean of what it says about every position."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).last_hidden_state.mean(1)


def ids(batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(3, WORDS, (batch, length), generator=torch.Generator().manual_seed(0))


def wave() -> Tensor:
    return torch.randn(2, 400, generator=torch.Generator().manual_seed(0))


Build = Callable[[], nn.Module]
Case = tuple[Build, tuple[Tensor, ...]]


def text(kind: str, head: str = "ForSequenceClassification", **options: Any) -> Case:
    def build() -> nn.Module:
        return getattr(t, kind + head)(getattr(t, f"{kind}Config")(**(TEXT | options)))

    return build, (ids(),)


def words(kind: str, head: str = "ForCausalLM", **options: Any) -> Case:
    build, inputs = text(kind, head, **options)
    return lambda: Words(build()), inputs


def pictures(
    kind: str, side: int, head: str = "ForImageClassification", *, batch: int = 2, **options: Any
) -> Case:
    def build() -> nn.Module:
        return getattr(t, kind + head)(getattr(t, f"{kind}Config")(**options))

    return build, (torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(0)),)


def masked_bert() -> Case:
    build, inputs = text("Bert")
    return build, (*inputs, torch.tensor([[1] * LENGTH, [1] * 8 + [0] * 4]))


MODELS: dict[str, Case] = {
    "bert": text("Bert"),
    "bert with a mask": masked_bert(),
    "distilbert": text("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "albert": text("Albert", embedding_size=16),
    "electra": text("Electra", embedding_size=16),
    "roberta": text("Roberta"),
    "gpt2": words("GPT2", "LMHeadModel", **GPT),
    "gpt2 classifier": text("GPT2", **GPT),
    "llama": words("Llama", **FEW_HEADS),
    "qwen2": words("Qwen2", **FEW_HEADS),
    "opt": words("OPT", ffn_dim=64, word_embed_proj_dim=32),
    "t5 encoder": (lambda: Hidden(t.T5EncoderModel(t.T5Config(**T5))), (ids(),)),
    "vit": pictures("ViT", 32, **VISION),
    "dinov2": pictures("Dinov2", 32, **VISION),
    "mobilenet_v1": pictures("MobileNetV1", 64, image_size=64, depth_multiplier=0.25),
    "mobilenet_v2": pictures("MobileNetV2", 64, image_size=64, depth_multiplier=0.25),
    "resnet": pictures(
        "ResNet", 32, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    ),
    "regnet": pictures(
        "RegNet", 32, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=8
    ),
    "convnext": pictures("ConvNext", 64, hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1]),
    "convnextv2": pictures("ConvNextV2", 64, hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1]),
    "swin": pictures("Swin", 32, **WINDOWS),
    "segformer": pictures("Segformer", 64, **STAGES),
    "poolformer": pictures("PoolFormer", 64, **STAGES),
}

MORE: dict[str, Case] = {
    "bart": (
        lambda: Words(t.BartForConditionalGeneration(t.BartConfig(**BART))),
        (ids(), ids(2, 7)),
    ),
    "beit": pictures("Beit", 32, **VISION, use_relative_position_bias=True),
    "bert for masked words": words("Bert", "ForMaskedLM"),
    "bit": pictures(
        "Bit", 32, embedding_size=8, hidden_sizes=[32, 32], depths=[1, 1], num_groups=4
    ),
    "bloom": words("Bloom", n_layer=2, n_head=4),
    "convbert": text("ConvBert", embedding_size=32),
    "deberta": text("Deberta"),
    "deberta_v2": text("DebertaV2"),
    "deit": pictures("DeiT", 32, **VISION),
    "dinov2 with registers": pictures("Dinov2WithRegisters", 32, **VISION),
    "efficientnet": pictures(
        "EfficientNet",
        64,
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
    ),
    "falcon": words("Falcon"),
    "gemma2": words("Gemma2", num_key_value_heads=1, head_dim=8, sliding_window=4),
    "gpt_neo": words(
        "GPTNeo",
        num_layers=2,
        attention_types=[[["global", "local"], 1]],
        num_heads=4,
        window_size=4,
    ),
    "gpt_neox": words("GPTNeoX"),
    "gptj": words("GPTJ", **GPT, rotary_dim=4),
    "hubert": (lambda: t.HubertForSequenceClassification(t.HubertConfig(**SOUND)), (wave(),)),
    "levit": pictures(
        "Levit",
        64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[2, 2, 2],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    "llama classifier": text("Llama", **FEW_HEADS),
    "mamba": words("Mamba", state_size=4),
    "mistral": words("Mistral", **FEW_HEADS, sliding_window=4),
    "mobilebert": text(
        "MobileBert", embedding_size=32, intra_bottleneck_size=16, true_hidden_size=16
    ),
    "mobilevit": pictures(
        "MobileViT",
        64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=4,
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
    ),
    "mobilevitv2": pictures("MobileViTV2", 64, image_size=64, width_multiplier=0.25),
    "modernbert": text(
        "ModernBert", cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2
    ),
    "mpnet": text("MPNet"),
    "olmo": words("Olmo"),
    "phi": words("Phi"),
    "phi3": words("Phi3", **FEW_HEADS),
    "pvt_v2": pictures("PvtV2", 64, **STAGES),
    "qwen3": words("Qwen3", **FEW_HEADS, head_dim=8),
    "segformer for segmentation": pictures(
        "Segformer", 64, "ForSemanticSegmentation", **STAGES, decoder_hidden_size=16
    ),
    "squeezebert": text("SqueezeBert", embedding_size=32),
    "stablelm": words("StableLm", num_key_value_heads=4),
    "swinv2": pictures("Swinv2", 32, **WINDOWS),
    "t5": (lambda: Words(t.T5ForConditionalGeneration(t.T5Config(**T5))), (ids(), ids(2, 7))),
    "wav2vec2": (
        lambda: t.Wav2Vec2ForSequenceClassification(t.Wav2Vec2Config(**SOUND)),
        (wave(),),
    ),
    "xlm_roberta": text("XLMRoberta"),
}


SLOW = {"mobilenet_v1", "mobilenet_v2"}  # which our own are like
SLOW |= {"electra", "distilbert", "qwen2", "convnextv2", "roberta", "gpt2 classifier", "opt"}
SLOW |= {"dinov2", "regnet", "segformer"}  # and these like others here
assert SLOW <= MODELS.keys()


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS],
)
def test_transformers_train_as_pytorch_does(name: str) -> None:
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    agreement(prepared(build(), *inputs), *inputs, lr=1e-2)


@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gpt2", "opt", "swin"))]
)
def test_transformers_with_dropout_train_as_pytorch_does(name: str) -> None:
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    report = agreement(prepared(build(), *inputs).train(), *inputs, lr=1e-2)
    assert any("dropout" in note for note in report.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_transformers_train_as_pytorch_does(name: str) -> None:
    torch.manual_seed(0)
    build, inputs = MORE[name]
    # In eval mode LeViT keeps a part of its graph, so that PyTorch itself cannot train it there.
    model = prepared(build(), *inputs).train(name == "levit")
    agreement(model, *inputs, lr=1e-2)
