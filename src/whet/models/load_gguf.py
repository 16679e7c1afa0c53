"""A language model in PyTorch from a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import FrontendError
from .ggml import Array
from .gguf import Gguf, GgufTensor
from .llama import Llama, LlamaConfig

ARCHITECTURES = ("llama", "qwen2")
PERMUTED = "llama"  # its queries and keys are stored for pairs of neighbours
CONTEXT = 2048
FACTORS = "rope_freqs.weight"
MOST = 1e12  # beyond any base or factor of positions

# The parameters of a block, in the file and in PyTorch.
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
AROUND = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


@dataclass(frozen=True, eq=False)
class Blocks:
    """A parameter as its file stores it: `data` has one line of bytes for each row."""

    format: str  # "Q4_1", for example
    shape: tuple[int, ...]
    stored: GgufTensor
    order: Array | None = None  # of the rows, if it is not that of the file

    @property
    def data(self) -> Array:
        rows = self.stored.rows()
        return rows if self.order is None else rows[self.order]

    def array(self) -> Array:
        """The same numbers as float32."""
        found = self.stored.array()
        return found if self.order is None else found[self.order]

    def __deepcopy__(self, memo: dict[int, Any]) -> Blocks:
        return self  # it never changes


def from_gguf(path: str | os.PathLike[str], *, context: int = CONTEXT) -> Llama:
    """The model of a GGUF file of architecture llama (SmolLM, Llama, Mistral) or qwen2.

    Quantized weights become the float32 numbers that they stand for. `context` is the longest
    sequence that the model will take; the one that it was trained for if that is less.
    `model.whet_blocks` has every parameter as the file stores it.
    """
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise FrontendError(f"context={context!r} is not a number of tokens")
    return model_of(Gguf.open(path), context)


def model_of(file: Gguf, context: int = CONTEXT) -> Llama:
    config = config_of(file, context)
    check_sizes(file, config)
    with torch.device("meta"):  # nothing is allocated or drawn before the file is known to fit
        model = Llama(config)
    parameters = dict(model.named_parameters())
    blocks = blocks_of(file, config, {n: tuple(p.shape) for n, p in parameters.items()})
    state = {name: torch.from_numpy(found.array()) for name, found in blocks.items()}
    model.load_state_dict(state, strict=not config.tied, assign=True)
    if config.tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    object.__setattr__(model, "whet_blocks", blocks)
    return model.eval()


def config_of(file: Gguf, context: int) -> LlamaConfig:
    kind = file.metadata.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise FrontendError(
            f"the file's architecture is {kind!r}, which whet does not know",
            try_=f"a model of architecture {' or '.join(ARCHITECTURES)}",
        )
    refuse_variants(file, kind)
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise FrontendError("the file has no embedding 'token_embd.weight'")
    heads = file.count(f"{kind}.attention.head_count")
    width = file.count(f"{kind}.embedding_length")
    groups = file.count(f"{kind}.attention.head_count_kv", heads)
    head = file.count(f"{kind}.attention.key_length", max(1, width // heads))
    turned = file.count(f"{kind}.rope.dimension_count", head)
    if heads % groups or head % 2 or turned != head:
        raise FrontendError(
            "the heads of this model are not as whet expects them",
            why=f"{heads} heads of {head} numbers share {groups}, and {turned} numbers are rotated",
        )
    return LlamaConfig(
        vocabulary=table.shape[0],
        width=width,
        hidden=file.count(f"{kind}.feed_forward_length"),
        blocks=blocks_in(file, kind),
        heads=heads,
        kv_heads=groups,
        head=head,
        context=min(context, file.count(f"{kind}.context_length", context)),
        eps=positive(file, f"{kind}.attention.layer_norm_rms_epsilon"),
        theta=positive(file, f"{kind}.rope.freq_base", 10_000.0, least=1.0),
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        tied="output.weight" not in file.tensors,
        slower=factors(file, head),
    )


def check_sizes(file: Gguf, config: LlamaConfig) -> None:
    """The sizes in the metadata are those of tensors, which are in the file."""
    wanted = {
        "token_embd.weight": (config.vocabulary, config.width),
        "blk.0.ffn_gate.weight": (config.hidden, config.width),
        "blk.0.attn_q.weight": (config.heads * config.head, config.width),
    }
    for name, shape in wanted.items():
        check_shape(file.tensors.get(name), name, shape)


def check_shape(tensor: GgufTensor | None, name: str, shape: tuple[int, ...]) -> GgufTensor:
    if tensor is None:
        raise FrontendError(f"the file has no tensor {name!r}")
    if tensor.shape != shape:
        raise FrontendError(
            f"tensor {name!r} has the shape {tensor.shape}",
            why=f"by the file's metadata, it is {shape}",
        )
    return tensor


def refuse_variants(file: Gguf, kind: str) -> None:
    """Models that share the name of the architecture and compute something else."""
    scaling = file.metadata.get(f"{kind}.rope.scaling.type", "none")
    variants = {
        "experts": file.metadata.get(f"{kind}.expert_count", 0) != 0,
        f"positions scaled by {scaling!r}": scaling != "none",
        "a sliding window": file.metadata.get(f"{kind}.attention.sliding_window", 0) != 0,
    }
    found = [what for what, holds in variants.items() if holds]
    if found:
        raise FrontendError(f"the model has {' and '.join(found)}, which whet does not know")


def blocks_in(file: Gguf, kind: str) -> int:
    """How many blocks the file says it has, if that many can be there."""
    count = file.count(f"{kind}.block_count")
    if count > len(file.tensors):
        raise FrontendError(
            f"the file says that it has {count:,} blocks, but only {len(file.tensors):,} tensors"
        )
    return count


def positive(file: Gguf, key: str, default: float | None = None, least: float = 0.0) -> float:
    value = float(file.number(key, default))
    if not least <= value <= MOST or value == 0:
        raise FrontendError(f"{key!r} in the file's metadata is {value}, which makes no sense")
    return value


def factors(file: Gguf, head: int) -> tuple[float, ...]:
    """What Llama 3 divides the frequencies of its rotation by."""
    if FACTORS not in file.tensors:
        return ()
    found = check_shape(file.tensors[FACTORS], FACTORS, (head // 2,)).array()
    if not ((found >= 1 / MOST) & (found <= MOST)).all():
        raise FrontendError(f"{FACTORS!r} holds numbers that make no sense")
    return tuple(found.tolist())


def names(config: LlamaConfig) -> Iterator[tuple[str, str]]:
    """The name of every module in the file, and in PyTorch."""
    yield from AROUND.items()
    for i in range(config.blocks):
        for stored, ours in BLOCK.items():
            yield f"blk.{i}.{stored}", f"model.layers.{i}.{ours}"


def blocks_of(
    file: Gguf, config: LlamaConfig, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Blocks]:
    """Every parameter of the model, found in the file with the shape that it must have."""
    found: dict[str, Blocks] = {}
    left = set(file.tensors) - {FACTORS}
    for stored, ours in names(config):
        for kind in ("weight", "bias"):
            name, place = f"{ours}.{kind}", f"{stored}.{kind}"
            if name not in shapes:
                continue
            tensor = check_shape(file.tensors.get(place), place, shapes[name])
            if len(tensor.shape) == 1 and tensor.format.block > 1:
                raise FrontendError(
                    f"tensor {place!r} is stored as {tensor.format.name}, not plain"
                )
            found[name] = Blocks(
                tensor.format.name, tensor.shape, tensor, order(file, ours, config)
            )
            left.discard(tensor.name)
    if left:
        raise FrontendError(
            f"the file has {len(left)} tensors that this architecture does not have",
            why=", ".join(sorted(left)[:5]),
        )
    return found


def order(file: Gguf, module: str, config: LlamaConfig) -> Array | None:
    """Where each row of a weight is in the file.

    llama.cpp rotates neighbours (2i, 2i + 1) of a head, and its converter reorders the rows of
    queries and keys for that. Here, and in Hugging Face's models, i and i + head / 2 are a pair.
    """
    heads = {"q_proj": config.heads, "k_proj": config.kv_heads}.get(module.rpartition(".")[2])
    if heads is None or file.metadata["general.architecture"] != PERMUTED:
        return None
    rows = np.arange(heads * config.head).reshape(heads, config.head // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)
