"""Roles: what the layers of a transformer are for, found without a look at their names."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import whet
from tiny_transformers import BUILD, transformer
from whet.ir import Attributes, Op, Type
from whet.ir.text import parse_graph
from whet.scheme import Parameter, blocks, parameters_of

SEPARATE = {"query": "query", "key": "key", "value": "value"}
BERT = SEPARATE | {"attention.output.dense": "output", "intermediate.dense": "up",
                   "output.dense": "down"}  # fmt: skip
GPT2 = {"c_attn": "qkv", "attn.c_proj": "output", "c_fc": "up", "mlp.c_proj": "down"}
LLAMA = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output",
         "gate_proj": "up", "up_proj": "up", "down_proj": "down"}  # fmt: skip
NAMES: dict[str, dict[str, str]] = {
    "bert": BERT,
    "roberta": BERT,
    "bert for masked words": BERT,
    "distilbert": {"q_lin": "query", "k_lin": "key", "v_lin": "value", "out_lin": "output",
                   "lin1": "up", "lin2": "down"},
    "vit": {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output",
            "fc1": "up", "fc2": "down"},
    "vit of timm": {"qkv": "qkv", "proj": "output", "fc1": "up", "fc2": "down"},
    "gpt2": GPT2,
    "gpt2 classifier": GPT2,
    "llama": LLAMA,
    "smollm2": LLAMA,
    "qwen2": LLAMA,
}  # fmt: skip


EMBEDDING = r"embeddings?\.weight|embed_tokens|wte|wpe"
HEAD = r"(classifier|score|head)\.(out_proj\.)?\w+$"


@functools.cache
def parameters(name: str) -> tuple[Parameter, ...]:
    model, inputs = transformer(name)
    return whet.Workbench.of(model, inputs).parameters


def test_every_model_is_here() -> None:
    assert NAMES.keys() == BUILD.keys()


@pytest.mark.parametrize("name", NAMES)
def test_roles_are_what_the_names_say(name: str) -> None:
    ends = sorted(NAMES[name].items(), key=lambda pair: -len(pair[0]))
    seen = set()
    for p in parameters(name):
        if not re.search(r"\b(layers?|blocks|h)\.\d+\.", p.name) or p.role == "norm":
            continue
        end = next(end for end, _ in ends if p.module.endswith(f".{end}"))
        assert p.role == NAMES[name][end], p
        assert p.linear == (p.kind != "bias")
        seen.add(end)
    assert seen == set(NAMES[name])
    assert len(blocks(parameters(name))) == 2


@pytest.mark.parametrize("name", NAMES)
def test_what_is_outside_of_blocks(name: str) -> None:
    outside = {p.name: p for p in parameters(name) if p.block not in blocks(parameters(name))}
    tied = {n for n, p in outside.items() if p.tied}
    assert len(tied) == (name in ("gpt2", "smollm2", "bert for masked words"))
    for n, p in outside.items():
        assert (p.role == "embedding") == bool(re.search(EMBEDDING, n)), n
        assert (p.role == "head") == bool(re.match(HEAD, n)), n
        assert (p.role == "vocabulary head") == (n == "model.lm_head.weight") or p.role == "head"
        assert p.role not in ("query", "key", "value", "qkv", "output", "up", "down"), n


def test_attention_of_pytorch_is_found_too() -> None:
    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True) for _ in "ab"
            )
            self.out = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return self.out(x.mean(1))

    found = whet.Workbench.of(Tiny().train(), (torch.randn(2, 5, 8),)).parameters
    roles = {p.name: p.role for p in found}
    for layer in ("layers.0", "layers.1"):
        assert roles[f"{layer}.self_attn.in_proj_weight"] == "qkv"
        assert roles[f"{layer}.self_attn.in_proj_bias"] == "qkv"
        assert roles[f"{layer}.self_attn.out_proj.weight"] == "output"
        assert roles[f"{layer}.linear1.weight"] == "up"
        assert roles[f"{layer}.linear2.bias"] == "down"
    assert roles["out.weight"] == "head"


@pytest.fixture
def one_attention() -> Iterator[str]:
    """The name of an operator that attends, known for the length of a test."""

    class OneAttention(Op):
        """softmax(q k') v"""

        name = "one_attention"
        attends = True

        @staticmethod
        def infer(a: Attributes, q: Type, k: Type, v: Type) -> Type:
            return q

    yield OneAttention.name
    del Op.registry[OneAttention.name]


def test_an_operator_that_attends_is_attention(one_attention: str) -> None:
    graph = parse_graph(f"""
graph g {{
  %x : f32[1,4,8] input
  %b.0.a : f32[8,8] param
  %b.0.b : f32[8,8] param
  %b.0.c : f32[8,8] param
  %b.0.d : f32[8,8] param
  %b.0.e : f32[8,8] param
  %q = linear %x, %b.0.a : f32[1,4,8]
  %k = linear %x, %b.0.b : f32[1,4,8]
  %v = linear %x, %b.0.c : f32[1,4,8]
  %n = neg %k : f32[1,4,8]
  %y = {one_attention} %q, %n, %v : f32[1,4,8]
  %o = linear %y, %b.0.d : f32[1,4,8]
  %s = add %o, %x : f32[1,4,8]
  %z = linear %s, %b.0.e : f32[1,4,8]
  return %z
}}
""")
    roles = {p.name: p.role for p in parameters_of(graph)}
    assert roles == {
        "b.0.a": "query", "b.0.b": "key", "b.0.c": "value", "b.0.d": "output", "b.0.e": "head",
    }  # fmt: skip


def test_networks_without_attention_have_no_such_roles() -> None:
    net = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Softmax(-1), nn.Linear(8, 3)
    )
    found = whet.Workbench.of(net, (torch.randn(2, 4),)).parameters
    assert {p.role for p in found} == {"", "head"}
    assert all(p.linear == (p.kind == "weight") for p in found)
