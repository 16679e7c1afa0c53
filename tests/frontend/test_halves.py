"""Models in float16 and bfloat16 train in float32, and folded buffers keep their numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whet
from tiny import mlp
from token_models import Tied
from whet.ir import Role

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 2, 1, 2])
HALVES = (torch.float16, torch.bfloat16)
half = pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])


def text(program: whet.Program) -> dict[str, bytes]:
    return {str(name): content for name, content in program.files.items()}


@half
def test_a_model_in_halves_is_that_in_floats(dtype: torch.dtype) -> None:
    model = mlp().to(dtype)
    wide = mlp().to(dtype).float()
    ours, theirs = (whet.compile(m, (X,), optimizer="adam") for m in (model, wide))
    assert text(ours) == text(theirs)
    assert {p.dtype for p in model.parameters()} == {dtype}, "the user's model is left alone"
    ours.check(steps=3)


@half
def test_what_was_learnt_goes_back_in_halves(dtype: torch.dtype) -> None:
    model = mlp().to(dtype)
    trainer = whet.compile(model, (X,)).load()
    for _ in range(5):
        trainer.step(X, Y, lr=0.5)
    state = trainer.state_dict()
    model.load_state_dict(state, strict=False)
    for name, p in model.named_parameters():
        assert p.dtype == dtype and torch.equal(p, state[name].to(dtype))
    again = whet.compile(model, (X,)).load()
    again.load_state_dict(model.state_dict())
    wanted = model.float()(X).detach().numpy()
    np.testing.assert_allclose(again.predict(X), wanted, rtol=1e-5, atol=1e-6)


@half
def test_an_optimizer_in_halves_goes_on(dtype: torch.dtype) -> None:
    model = mlp().to(dtype)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(X.to(dtype)), Y).backward()
        sgd.step()
    momentum = sgd.state[model.fc1.weight]["momentum_buffer"]
    program = whet.compile(model, (X,), optimizer=sgd)
    program.check(steps=3)
    found = program.entries["train_step"].data.values()
    assert any(np.array_equal(a, momentum.float().numpy()) for a in found)
    assert momentum.dtype == dtype and model.fc1.weight.grad is not None
    ours, theirs = program.load(), mlp()
    theirs.load_state_dict(model.state_dict())
    again = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9)
    for name, p in model.named_parameters():
        wide = sgd.state[p]["momentum_buffer"].float()
        again.state[theirs.get_parameter(name)]["momentum_buffer"] = wide
    nn.functional.cross_entropy(theirs(X), Y).backward()
    again.step()
    ours.step(X, Y)
    np.testing.assert_allclose(
        ours.state_dict()["fc1.weight"], theirs.fc1.weight.detach(), rtol=1e-5, atol=1e-6
    )


@half
def test_shared_weights_stay_shared(dtype: torch.dtype) -> None:
    ids, labels = torch.arange(6).reshape(2, 3), torch.tensor([[1, 2, 3], [4, 5, 6]])
    program = whet.compile(Tied().to(dtype), (ids,), labels=labels)
    names = [leaf.name for leaf in program.entries["train_step"].leaves_of(Role.PARAM)]
    assert names == ["table.weight", "middle.weight", "middle.bias"]
    program.check(steps=3)


@half
def test_inputs_may_be_halves(dtype: torch.dtype) -> None:
    short = X.to(dtype)
    program = whet.compile(mlp(), (short,), loss="mse", labels=torch.zeros(4, 3, dtype=dtype))
    trainer, same = program.load(), program.load()
    target = torch.full((4, 3), 0.3, dtype=dtype)
    assert trainer.step(short, target) == same.step(short.float(), target.float())
    assert trainer.predict(short).tobytes() == same.predict(short.float()).tobytes()
    if dtype == torch.float16:
        assert trainer.predict(short.numpy()).tobytes() == same.predict(short.float()).tobytes()


class Stored(nn.Module):
    """A layer whose weight is kept in a buffer and made before it is used, and a trained head."""

    def __init__(self, kind: str, size: int = 8) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(1)
        self.kind = kind
        self.head = nn.Linear(size, 3)
        integers = torch.randint(-8, 8, (size, 8), generator=rng)
        scale = torch.rand(size, 1, generator=rng) / 8
        if kind == "int8":
            self.register_buffer("stored", (integers * 15).to(torch.int8))
        elif kind == "4 bits":
            nibbles = (integers + 8).to(torch.uint8)
            self.register_buffer("stored", nibbles[:, ::2] | nibbles[:, 1::2] << 4)
        elif kind == "float8":
            self.register_buffer("stored", integers.float().to(torch.float8_e4m3fn))
        else:
            halves = {"bfloat16": torch.bfloat16, "float16": torch.float16}[kind]
            self.register_buffer("stored", torch.randn(size, 8, generator=rng).to(halves))
            scale = scale.to(halves)
        self.register_buffer("scale", scale)

    def weight(self) -> Tensor:
        if self.kind == "4 bits":
            pairs = torch.stack([self.stored & 15, self.stored >> 4], -1)
            return (pairs.flatten(1).to(torch.int8) - 8) * self.scale
        if self.kind in ("int8", "float8"):
            return self.stored.float() * self.scale
        return (self.stored * self.scale).float()  # rounded to the type of both

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x @ self.weight().T))


KINDS = ("int8", "4 bits", "float8", "bfloat16", "float16")


@pytest.mark.parametrize("kind", KINDS)
def test_stored_weights_are_the_numbers_that_they_stand_for(kind: str) -> None:
    torch.manual_seed(0)
    model, x = Stored(kind), torch.randn(4, 8)
    program = whet.compile(model, (x,))
    constants = [a for a in program.entries["train_step"].data.values() if a.size == 64]
    wanted = model.weight().numpy()
    (found,) = (a.reshape(8, 8) for a in constants)
    assert found.dtype == np.float32
    assert np.array_equal(found, wanted) or np.array_equal(found.T, wanted)
    program.check(steps=3)


def messages(model: nn.Module, x: Tensor) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        whet.compile(model, (x,))
    return [str(w.message) for w in seen]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_said_that_buffers_grow(kind: str) -> None:
    size = 16384 // 4
    (told,) = messages(Stored(kind, size), torch.randn(4, 8))
    word = {"4 bits": "uint8", "float8": "float8_e4m3fn"}.get(kind, kind)
    assert f"32-bit numbers in the program: stored ({word})" in told
    assert messages(Stored(kind), torch.randn(4, 8)) == []


def test_a_language_model_in_bfloat16() -> None:
    from agreement import prepared  # first: transformers cannot be imported before it

    import transformers as t  # isort: skip

    sizes: dict[str, Any] = dict(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=48, num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, 50, (1, 9), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = prepared(t.LlamaForCausalLM(t.LlamaConfig(**sizes)), ids).bfloat16()
    task = whet.llm.Task(model, ("input_ids",))
    program = whet.compile(task, (ids,), loss=whet.llm.causal_lm_loss, labels=ids)
    program.check(steps=3)
    loss = program.load().step(ids, ids, lr=0.0)
    wanted = whet.llm.causal_lm_loss(task.float()(ids), ids).item()
    assert loss == pytest.approx(wanted, rel=1e-5)
