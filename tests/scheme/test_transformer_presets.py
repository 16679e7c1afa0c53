"""Presets for transformers: what trains, where the backward pass ends, and PyTorch's numbers."""

from __future__ import annotations

import functools
import re

import pytest
import torch
from torch import nn

import whet
from tiny_transformers import BUILD, transformer
from token_models import Tied
from whet.errors import SchemeError
from whet.scheme import Scheme, blocks, preset

LAST = re.compile(r"\b(layers?|blocks|h)\.1\.")
INSIDE = re.compile(r"\b(layers?|blocks|h)\.\d+\.")
BENCHES = ("bert", "gpt2", "smollm2")  # checked always; the others are slow


@functools.cache
def bench(name: str) -> whet.Workbench:
    model, inputs = transformer(name)
    return whet.Workbench.of(
        model, inputs, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    )


def trained(name: str, update: str) -> set[str]:
    known = bench(name).parameters
    return set(preset(update, known).resolve(known))


def of_roles(name: str, *roles: str) -> set[str]:
    """Names of the parameters with these roles in the last block."""
    return {p.name for p in bench(name).parameters if p.role in roles and LAST.search(p.name)}


PROJECTIONS = ("query", "key", "value", "qkv", "output")
BEHIND: dict[str, str] = {  # the blocks, and not the layer that scores a vocabulary
    "bert": r"bert\.pooler|classifier",
    "roberta": r"classifier",
    "distilbert": r"pre_classifier|classifier",
    "vit": r"vit\.layernorm|classifier",
    "vit of timm": r"norm|head",
    "gpt2": r"model\.transformer\.ln_f",
    "gpt2 classifier": r"transformer\.ln_f|score",
    "llama": r"model\.model\.norm",
    "smollm2": r"model\.model\.norm",
    "qwen2": r"model\.model\.norm",
    "bert for masked words": r"model\.cls\.predictions",
}


@pytest.mark.parametrize("name", BUILD)
def test_sparse_trains_attention_first_layers_and_biases_of_the_last_blocks(name: str) -> None:
    known = bench(name).parameters
    behind = {p.name for p in known if re.match(BEHIND[name], p.name) and not p.tied}
    biases = {p.name for p in known if p.kind.endswith("bias") and LAST.search(p.name)}
    assert trained(name, "sparse-1") == of_roles(name, *PROJECTIONS, "up") | biases | behind
    assert behind, "something is behind the blocks of every one of these"
    in_blocks = {n for n in trained(name, "sparse-2") if INSIDE.search(n)}
    assert {len(LAST.findall(n)) for n in in_blocks} == {0, 1}


@pytest.mark.parametrize("name", BUILD)
def test_attention_and_ffn_train_those_layers_alone(name: str) -> None:
    assert trained(name, "attention-1") == of_roles(name, *PROJECTIONS)
    assert trained(name, "ffn-1") == of_roles(name, "up", "down")
    assert trained(name, "attention-2") == trained(name, "attention")
    assert trained(name, "attention") > trained(name, "attention-1")
    assert trained(name, "norm-1") == of_roles(name, "norm")
    biases = {p.name for p in bench(name).parameters if p.kind.endswith("bias")}
    assert {n for n in biases if LAST.search(n)} == (
        trained(name, "bias-1") if biases else set()
    ) or name in ("llama", "smollm2")


@pytest.mark.parametrize("name", BUILD)
def test_last_blocks_are_those_with_attention_and_all_behind(name: str) -> None:
    known = bench(name).parameters
    every = {p.name for p in known}
    inside = {n for n in every if LAST.search(n)}
    head = {p.name for p in known if "head" in p.role}
    behind = {p.name for p in known if re.match(BEHIND[name], p.name) and not p.tied}
    assert trained(name, "last-1") == inside | behind | head
    assert trained(name, "full") == every


@pytest.mark.parametrize("name", ["gpt2", "smollm2", "bert for masked words"])
@pytest.mark.parametrize(
    "update",
    ["last", "last-1", "last-2", "bias+last", "norm+last", "sparse-2", "attention-1+ffn-1+last"],
)  # fmt: skip
def test_no_preset_but_full_trains_a_head_that_is_an_embedding(name: str, update: str) -> None:
    (tied,) = (p.name for p in bench(name).parameters if p.tied)
    assert tied not in trained(name, update)
    assert trained(name, update)
    assert tied in trained(name, "full")


@pytest.mark.parametrize("update", ["layers-1", "layers-3"])
def test_the_last_layers_are_those_before_a_tied_head(update: str) -> None:
    found = trained("smollm2", update)
    assert "model.model.layers.1.mlp.down_proj.weight" in found
    assert "model.model.embed_tokens.weight" not in found


def test_last_of_a_tied_head_is_what_lies_behind_the_last_block() -> None:
    assert trained("smollm2", "last") == {"model.model.norm.weight"}
    ends = ("weight", "bias")
    assert trained("gpt2", "last") == {f"model.transformer.ln_f.{end}" for end in ends}
    parts = ("transform.dense", "transform.LayerNorm")
    predictions = {f"model.cls.predictions.{part}.{end}" for part in parts for end in ends}
    assert trained("bert for masked words", "last") == predictions | {"model.cls.predictions.bias"}


def test_a_rule_may_train_a_tied_head() -> None:
    scheme = Scheme([whet.Rule("model.model.embed_tokens.weight")])
    assert set(bench("smollm2").compile(scheme).trained) == {"model.model.embed_tokens.weight"}


def test_where_nothing_is_behind_a_tied_head_the_last_block_trains() -> None:
    bench = whet.Workbench.of(Tied().eval(), (torch.randint(7, (2, 4)),))
    for update in ("last", "last-1"):
        found = set(bench.scheme(update).resolve(bench.parameters))
        assert found == {"middle.weight", "middle.bias"}


# The backward pass ---------------------------------------------------------------------------


def backward_blocks(name: str, update: str) -> set[str]:
    """The blocks that have a node of the backward pass."""
    program = bench(name).compile(update)
    nodes = program.entries["train_step"].nodes
    modules = [n.loc.module for n in nodes if n.out.name.startswith("d.")]
    found = (INSIDE.search(f"{module}.") for module in modules)
    return {match[0] for match in found if match}


@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize("update", ["last", "sparse-1", "lora-1", "last-1"])
def test_the_backward_pass_ends_at_the_first_block_that_trains(name: str, update: str) -> None:
    found = backward_blocks(name, update)
    assert {block for block in found if not LAST.match(block)} == set()
    assert bool(found) == (update != "last")


def test_a_full_backward_pass_has_all_blocks() -> None:
    assert len(backward_blocks("smollm2", "full")) == 2
    assert len(backward_blocks("smollm2", "sparse-2")) == 2


# Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["last", "last-1", "sparse-1", "attention-1+ffn-1", "lora"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in BENCHES else pytest.mark.slow) for n in BUILD]
)
def test_training_is_pytorchs(name: str, update: str) -> None:
    report = bench(name).compile(update).check()
    names = bench(name).compile(update).trained
    assert set(names) == set(report.gradients) == set(report.parameters) & set(names)
    assert max(report.gradients.values()) < 1e-4
    assert max(report.parameters.values()) < 1e-3


# Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "update", ["last-3", "sparse-3", "attention-3", "ffn-3", "lora-3", "bias-3", "norm-3"]
)
def test_more_blocks_than_there_are(update: str) -> None:
    with pytest.raises(SchemeError, match="the model has 2 blocks before its head, so there is no"):
        trained("bert", update)


@pytest.mark.parametrize("update", ["last-0", "sparse-0", "attention-0", "lora-0"])
def test_no_blocks_at_all(update: str) -> None:
    with pytest.raises(SchemeError, match=r"there is no|1 or more"):
        trained("bert", update)


@pytest.mark.parametrize("update", ["sparse-1", "attention", "attention-1", "ffn", "lora"])
def test_a_model_without_attention(update: str) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(SchemeError, match=r"attention|no target 'query'"):
        whet.compile(net, (torch.randn(2, 4),), update=update)


def test_names_that_are_near() -> None:
    with pytest.raises(SchemeError, match=r"did you mean sparse-2\?"):
        whet.compile(nn.Linear(2, 2), (torch.randn(1, 2),), update="sparse")
    with pytest.raises(SchemeError, match=r"there is no scheme 'attn-2'"):
        whet.compile(nn.Linear(2, 2), (torch.randn(1, 2),), update="attn-2")


def test_blocks_are_in_order() -> None:
    assert blocks(bench("distilbert").parameters) == [
        "distilbert.transformer.layer.0", "distilbert.transformer.layer.1",
    ]  # fmt: skip
