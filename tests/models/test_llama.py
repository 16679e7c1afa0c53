"""The Llama architecture against transformers' models, with weights of ours and of files."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from agreement import prepared  # first: transformers cannot be imported before it

import transformers as t  # isort: skip

import whet
from made_gguf import SIZES, blocks, llama_tensors, smollm2, tiny_llama, tiny_qwen2, written
from whet.errors import FrontendError
from whet.models import Gguf, Llama, LlamaConfig, from_gguf
from whet.models.load_gguf import model_of

t.logging.set_verbosity_error()

CONFIG = LlamaConfig(
    vocabulary=99, width=32, hidden=48, blocks=2, heads=4, kv_heads=2, head=8, context=64,
    eps=1e-6, theta=5e5,
)  # fmt: skip
IDS = torch.randint(0, 99, (2, 13), generator=torch.Generator().manual_seed(0))


def theirs(config: LlamaConfig, kind: str = "Llama", **options: Any) -> torch.nn.Module:
    """transformers' model of the same configuration."""
    made = getattr(t, f"{kind}Config")(
        vocab_size=config.vocabulary, hidden_size=config.width, intermediate_size=config.hidden,
        num_hidden_layers=config.blocks, num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads, head_dim=config.head, rms_norm_eps=config.eps,
        max_position_embeddings=config.context, tie_word_embeddings=config.tied,
        rope_parameters={"rope_type": "default", "rope_theta": config.theta}, use_cache=False,
        **options,
    )  # fmt: skip
    return getattr(t, f"{kind}ForCausalLM")(made)


def loss_of(scores: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


VARIANTS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "llama": ({}, "Llama", {}),
    "tied": ({"tied": True}, "Llama", {}),
    "all heads": ({"kv_heads": 4}, "Llama", {}),
    "wide heads": ({"head": 16}, "Llama", {}),
    "biases": ({"qkv_bias": True, "output_bias": True}, "Llama", {"attention_bias": True}),
    "mistral": ({}, "Mistral", {"sliding_window": None}),
    "qwen2": ({"qkv_bias": True, "tied": True}, "Qwen2", {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_loss_and_gradients_are_those_of_transformers(name: str) -> None:
    changes, kind, options = VARIANTS[name]
    config = LlamaConfig(**(CONFIG.__dict__ | changes))
    torch.manual_seed(0)
    reference = prepared(theirs(config, kind, **options), IDS)
    ours = Llama(config).eval()
    ours.load_state_dict(reference.state_dict())
    scores, wanted = ours(IDS), reference(IDS).logits
    torch.testing.assert_close(scores, wanted, rtol=1e-5, atol=1e-5)
    loss_of(scores, IDS).backward()
    loss = reference(input_ids=IDS, labels=IDS).loss
    loss.backward()
    assert loss_of(scores, IDS).item() == pytest.approx(loss.item(), rel=1e-5)
    gradients = dict(reference.named_parameters())
    for path, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[path].grad, rtol=1e-4, atol=1e-5)
    theirs_again = theirs(config, kind, **options)
    theirs_again.load_state_dict(ours.state_dict())
    assert ours.state_dict().keys() == reference.state_dict().keys()


def test_a_sequence_has_a_longest() -> None:
    model = Llama(CONFIG)
    assert model(torch.zeros(1, 64, dtype=torch.int64)).shape == (1, 64, 99)
    with pytest.raises(FrontendError, match="has 65 tokens, the model takes up to 64"):
        model(torch.zeros(1, 65, dtype=torch.int64))


def pairs_of_neighbours(file: Gguf, ids: Tensor) -> Tensor:
    """One block as llama.cpp computes it: weights as stored, neighbours (2i, 2i + 1) rotated."""
    w = {name: torch.from_numpy(tensor.array()) for name, tensor in file.tensors.items()}
    x = w["token_embd.weight"][ids]
    h = F.rms_norm(x, (32,), w["blk.0.attn_norm.weight"], 1e-5)
    angle = torch.outer(torch.arange(len(ids)).float(), 1e4 ** (-torch.arange(0, 8, 2) / 8))
    turn = torch.polar(torch.ones(angle.shape), angle)[:, None]

    def heads(name: str, rotate: bool) -> Tensor:
        y = (h @ w[f"blk.0.{name}.weight"].T).view(len(ids), -1, 8)
        if rotate:
            y = torch.view_as_real(torch.view_as_complex(y.reshape(*y.shape[:2], 4, 2)) * turn)
        return y.reshape(len(ids), -1, 8).transpose(0, 1)

    q, k, v = heads("attn_q", True), heads("attn_k", True), heads("attn_v", False)
    k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + y.transpose(0, 1).reshape(len(ids), 32) @ w["blk.0.attn_output.weight"].T
    h = F.rms_norm(x, (32,), w["blk.0.ffn_norm.weight"], 1e-5)
    h = F.silu(h @ w["blk.0.ffn_gate.weight"].T) * (h @ w["blk.0.ffn_up.weight"].T)
    x = x + h @ w["blk.0.ffn_down.weight"].T
    return F.rms_norm(x, (32,), w["output_norm.weight"], 1e-5) @ w["token_embd.weight"].T


def test_queries_and_keys_of_llama_files_are_put_in_order() -> None:
    file = Gguf.parse(tiny_llama())
    ids = torch.arange(3, 20)
    with torch.no_grad():
        ours = model_of(file)(ids[None])[0]
        torch.testing.assert_close(ours, pairs_of_neighbours(file, ids), rtol=1e-4, atol=1e-5)
        wrong = model_of(file)
        for layer in (
            wrong.model.layers[0].self_attn.q_proj,
            wrong.model.layers[0].self_attn.k_proj,
        ):
            name = f"blk.0.attn_{'q' if layer.out_features == 32 else 'k'}.weight"
            layer.weight.copy_(torch.from_numpy(file.tensors[name].array()))
        assert (wrong(ids[None])[0] - ours).abs().max() > 0.01


def test_a_qwen2_file_has_biases_and_keeps_its_order() -> None:
    file = Gguf.parse(tiny_qwen2())
    model = model_of(file)
    assert not model.config.tied and model.config.qkv_bias and not model.config.output_bias
    for stored, ours in (("attn_q", "q_proj"), ("attn_k", "k_proj")):
        layer = model.get_submodule(f"model.layers.0.self_attn.{ours}")
        np.testing.assert_array_equal(
            layer.weight.detach(), file.tensors[f"blk.0.{stored}.weight"].array()
        )
        np.testing.assert_array_equal(
            layer.bias.detach(), file.tensors[f"blk.0.{stored}.bias"].array()
        )
    reference = theirs(model.config, "Qwen2").eval()
    reference.load_state_dict(model.state_dict())
    ids = torch.arange(3, 20)[None]
    torch.testing.assert_close(model(ids), reference(ids).logits, rtol=1e-4, atol=1e-5)


def test_parameters_are_also_there_as_the_file_stores_them() -> None:
    model = model_of(Gguf.parse(tiny_llama()))
    found = copy.deepcopy(model).whet_blocks
    parameters = dict(model.named_parameters())
    assert found.keys() == parameters.keys()
    for name, parameter in parameters.items():
        np.testing.assert_array_equal(found[name].array(), parameter.detach())
    q = found["model.layers.0.self_attn.q_proj.weight"]
    assert q.format == "Q4_1" and q.data.shape == (32, 20) and q.data.dtype == np.uint8
    assert not np.array_equal(q.data, q.stored.rows()), "its rows are in another order"


def test_biases_of_llama_files_are_put_in_order_as_their_weights() -> None:
    tensors = llama_tensors(np.random.default_rng(0))
    numbers = np.arange(32, dtype=np.float32)
    tensors |= {f"blk.0.attn_{name}.bias": ("F32", (n,), numbers[:n].tobytes())
                for name, n in (("q", 32), ("k", 16), ("v", 16))}  # fmt: skip
    model = model_of(Gguf.parse(written(SIZES, tensors)))
    attention = model.model.layers[0].self_attn
    first = [0, 2, 4, 6, 1, 3, 5, 7]
    assert attention.q_proj.bias[:8].tolist() == attention.k_proj.bias[:8].tolist() == first
    assert attention.v_proj.bias[:8].tolist() == list(range(8))
    stored = model.whet_blocks["model.layers.0.self_attn.q_proj.bias"]
    assert stored.data.view(np.float32)[:8, 0].tolist() == first
    tensors["blk.0.attn_q.bias"] = blocks("Q8_0", (32,), np.random.default_rng(0))
    with pytest.raises(FrontendError, match="is stored as Q8_0, not plain"):
        model_of(Gguf.parse(written(SIZES, tensors)))


def test_frequencies_may_be_slowed_down() -> None:
    slower = LlamaConfig(**(CONFIG.__dict__ | {"slower": (1.0, 2.0, 4.0, 8.0)}))
    cos, plain = Llama(slower).model.cos, Llama(CONFIG).model.cos
    assert torch.equal(cos[:, 0], plain[:, 0]) and torch.equal(cos[::8, 3], plain[:8, 3])


def test_a_context_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_llama())
    assert from_gguf(path).config.context == 64, "that of the file, which is less"
    assert from_gguf(path, context=16).config.context == 16
    with pytest.raises(FrontendError, match="context=0 is not a number of tokens"):
        from_gguf(path, context=0)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_it_trains_in_c_as_in_pytorch(name: str) -> None:
    changes, _, _ = VARIANTS[name]
    torch.manual_seed(0)
    model = prepared(Llama(LlamaConfig(**(CONFIG.__dict__ | changes))), IDS)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    program = whet.compile(model, (IDS,), loss=loss_of, labels=IDS, optimizer=adam, accumulate=True)
    report = program.check(steps=10)
    assert max(report.gradients.values()) < 1e-4


@pytest.mark.slow
def test_a_published_model_is_what_transformers_reads() -> None:
    path = smollm2()
    if importlib.util.find_spec("gguf") is None or importlib.util.find_spec("accelerate") is None:
        pytest.skip("transformers reads GGUF files with the packages gguf and accelerate")
    reference = t.LlamaForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    model = from_gguf(path)
    wanted = reference.state_dict()
    assert model.state_dict().keys() == wanted.keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    ids = torch.randint(0, 49152, (1, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores, theirs_ = model(ids), reference(ids).logits
    torch.testing.assert_close(scores, theirs_, rtol=1e-5, atol=2e-4)
    assert loss_of(scores, ids).item() == pytest.approx(loss_of(theirs_, ids).item(), rel=1e-5)
