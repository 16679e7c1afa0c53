"""Accumulated and clipped gradients of language models: with LoRA, a fused head, tied weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, parametrize

import whet
from whet.errors import DataError, NotFinite
from whet.ir import Array
from whet.llm import causal_lm_loss
from whet.models import Llama, LlamaConfig
from whet.ops.linear_loss import LinearCrossEntropy

WORDS, LENGTH, CLIP = 4100, 24, 0.05  # as many words as a fused head pays for


def model(tied: bool = True) -> Llama:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocabulary=WORDS, width=16, hidden=24, blocks=3, heads=2, kv_heads=1, head=8,
        context=LENGTH, tied=tied,
    )  # fmt: skip
    return Llama(config).eval()


def batch(seed: int, ignored: float) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(WORDS, (1, LENGTH), generator=g)
    return ids, ids.masked_fill(torch.rand(1, LENGTH, generator=g) < ignored, -100)


def adam(parameters: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=1e-2, eps=1e-3)  # where noise has no sign


class Factors(nn.Module):
    def __init__(self, a: Array, b: Array, scale: float) -> None:
        super().__init__()
        self.lora_A, self.lora_B = (nn.Parameter(torch.from_numpy(m.copy())) for m in (a, b))
        self.scale = scale

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * self.lora_B @ self.lora_A


def trained_in_pytorch(net: nn.Module, trainer: whet.Trainer) -> dict[str, nn.Parameter]:
    """What trains, by the program's names; the factors of LoRA are put in beside their weights."""
    start, program = trainer.arrays(), trainer.program
    net.requires_grad_(False)
    found = {}
    for name, own in program.factors.items():
        pair = Factors(*(start.pop(n) for n in own.names), own.scale)
        layer, _, end = name.rpartition(".")
        parametrize.register_parametrization(net.get_submodule(layer), end, pair)
        found |= zip(own.names, pair.parameters(), strict=True)
    found |= {name: net.get_parameter(name) for name in start}
    for parameter in found.values():
        parameter.requires_grad_(True)
    return found


@pytest.mark.parametrize(
    ("update", "tied", "rematerialize"),
    [
        ("full", True, False),
        pytest.param("full", True, "layers", marks=pytest.mark.slow),
        pytest.param("full", False, "layers", marks=pytest.mark.slow),
        ("sparse-1", True, False),
        ("lora", True, "layers"),
        ("lora-1+last", False, False),
    ],
)
def test_accumulation_and_clipping_are_pytorchs(
    update: str, tied: bool, rematerialize: bool | str
) -> None:
    net = model(tied)
    program = whet.compile(
        net, batch(0, 0)[:1], loss=causal_lm_loss, labels=batch(0, 0)[1],
        optimizer=adam(net.parameters()), update=update, accumulate=True, clip_norm=CLIP,
        rematerialize=rematerialize,
    )  # fmt: skip
    if update in ("sparse-1", "lora"):
        for entry in ("train_step", "gradients"):
            assert LinearCrossEntropy in {n.op for n in program.entries[entry].nodes}
    trainer = program.load()
    if program.factors:  # with zeros in one of them, the other has no gradient
        rng = np.random.default_rng(0)
        start = {n: a for n, a in trainer.arrays().items() if n.endswith("lora_B")}
        trainer.load_state_dict({n: rng.normal(0, 0.1, a.shape) for n, a in start.items()})
    parameters = trained_in_pytorch(net, trainer)
    optimizer = adam(parameters.values())

    def right(*batches: tuple[Tensor, Tensor]) -> list[float]:
        optimizer.zero_grad()
        losses = [causal_lm_loss(net(ids), labels) for ids, labels in batches]
        (sum(losses) / len(losses)).backward()
        assert clip_grad_norm_(parameters.values(), CLIP) > 2 * CLIP
        optimizer.step()
        return [loss.item() for loss in losses]

    for round in range(3):
        pair = batch(2 * round, 0.2), batch(2 * round + 1, 0.8)
        losses = [trainer.gradients(*one) for one in pair]
        assert losses == pytest.approx(right(*pair), rel=1e-5)
        trainer.apply(scale=0.5)
    whole = batch(7, 0.5)  # the sums are empty again, and moments are shared
    assert trainer.step(*whole) == pytest.approx(right(whole)[0], rel=1e-5)
    found = trainer.arrays()
    assert found.keys() == parameters.keys()
    for name, parameter in parameters.items():
        np.testing.assert_allclose(found[name], parameter.detach(), atol=2e-5, err_msg=name)


def test_a_batch_that_does_not_count_adds_nothing() -> None:
    net = model()
    program = whet.compile(
        net, batch(0, 0)[:1], loss=causal_lm_loss, labels=batch(0, 0)[1], update="sparse-1",
        accumulate=True,
    )  # fmt: skip
    trainer = program.load()
    trainer.gradients(*batch(1, 0.5))
    before = trainer.collected()
    with pytest.raises(NotFinite, match="all of label is -100, which does not count"):
        trainer.gradients(*batch(1, 1.0))
    ids, labels = batch(1, 1.0)
    labels[0, 0] = 5  # no position comes before it
    with pytest.raises(NotFinite, match="what is compared of label is -100"):
        trainer.gradients(ids, labels)
    with pytest.raises(DataError, match="label holds 4100 to 4100; allowed are 0 to 4099, and -1"):
        trainer.gradients(ids, torch.full_like(labels, WORDS))
    for name, gradient in trainer.collected().items():
        np.testing.assert_array_equal(gradient, before[name])


@pytest.mark.slow
def test_blocks_are_computed_again() -> None:
    """A step keeps what lies between blocks alone, for one more forward pass of them."""
    config = LlamaConfig(
        vocabulary=64, width=32, hidden=96, blocks=6, heads=2, kv_heads=1, head=16, context=128
    )
    ids = torch.zeros(1, 128, dtype=torch.int64)
    plain, again = (
        whet.compile(
            Llama(config).eval(), (ids,), loss=causal_lm_loss, labels=ids, rematerialize=how
        ).plans["train_step"]
        for how in (False, "layers")
    )
    assert again.arena < plain.arena / 3
    forward = sum(node.op.macs(node) for node in plain.graph.nodes) / 3
    extra = sum(node.op.macs(node) for node in again.graph.nodes) - 3 * forward
    assert 0.5 * forward < extra < 1.2 * forward
