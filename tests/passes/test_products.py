"""Products of bfloat16 and int8: what becomes of a graph, and whole programs that train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.errors import CheckError, SchemeError
from whet.ir.interp import interpret
from whet.ir.text import parse_graph
from whet.llm import causal_lm_loss
from whet.models import Llama, LlamaConfig
from whet.passes.multiply_bytes import multiply_bytes
from whet.passes.round_products import round_products
from whet.verify import products as verify

CONFIG = LlamaConfig(
    vocabulary=60, width=32, hidden=64, blocks=2, heads=2, kv_heads=1, head=16, context=32,
    eps=1e-6, theta=5e5, tied=True,
)  # fmt: skip

STEP = parse_graph("""
graph g {
  %x : f32[16,32] input
  %dy : f32[16,8] input
  %w : f32[8,32] input
  %few : f32[15,32] input
  %q : i8[8,32] input
  %s : f32[8] input
  %y = linear %x, %w : f32[16,8]
  %dx = linear_dx %dy, %w : f32[16,32]
  %dw = linear_dw %dy, %x : f32[8,32]
  %same = linear %few, %w : f32[15,8]
  %a = linear_stored %x, %q, %s {inputs=32, outputs=8} : f32[16,8]
  %b = linear_stored %x, %q, %s {inputs=32, outputs=8} : f32[16,8]
  return %y, %dx, %dw, %same, %a, %b
}
""")


def ops_of(graph: Any) -> list[str]:
    return [node.op.name for node in graph.nodes]


def outputs(graph: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    feed = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.leaves}
    feed["q"] = rng.integers(-127, 128, (8, 32)).astype(np.int8)
    return interpret(graph, feed)[0]


def apart(given: Any, right: Any) -> float:
    return float(np.linalg.norm(given - right) / np.linalg.norm(right))


def test_products_with_enough_rows_are_rounded_to_bf16() -> None:
    after = round_products(STEP)
    assert ops_of(after)[:4] == ["linear_bf16", "linear_bf16_dx", "linear_bf16_dw", "linear"]
    given, right = outputs(after), outputs(STEP)
    assert all(1e-4 < apart(*pair) < 5e-3 for pair in zip(given[:3], right[:3], strict=True))
    assert np.array_equal(given[3], right[3])


def test_rows_are_rounded_to_int8_once_for_all_that_multiply_them() -> None:
    after = multiply_bytes(STEP)
    assert ops_of(after)[4:] == ["quantize_rows", "linear_dots", "linear_dots"]
    given, right = outputs(after), outputs(STEP)
    assert 1e-4 < apart(given[4], right[4]) < 2e-2 and np.array_equal(given[4], given[5])


def program_of(update: Any, **choices: Any) -> whet.Program:
    torch.manual_seed(0)
    model, ids = Llama(CONFIG), torch.randint(0, 60, (1, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return whet.compile(
        model, (ids,), loss=causal_lm_loss, labels=ids, update=update, optimizer=optimizer,
        **choices,
    )  # fmt: skip


PROGRAMS = {
    "bf16": ("full", {"products": "bf16"}),
    "int8": ("sparse-1", {"products": "int8", "frozen": "q8_0"}),
    "both": ("lora", {"products": "int8+bf16", "frozen": "int8"}),
    "parts": (
        whet.Scheme([whet.Rule("model.layers.1.mlp.down_proj.weight", channels=0.5)]),
        {"products": "int8+bf16", "frozen": "q4_1"},
    ),
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS if name != "both"]


@pytest.mark.parametrize("name", ["both", *SLOW])
def test_a_program_trains_as_pytorch_does_with_the_same_rounding(name: str) -> None:
    update, choices = PROGRAMS[name]
    report = program_of(update, **choices).check(steps=3)
    assert report.changed is not None and 1e-4 < report.changed < 0.05
    assert "on both sides" in report.notes[-1] and "changes the gradient by" in str(report)


@pytest.mark.slow  # it tries five times
def test_check_finds_products_that_round_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of("sparse-1", products="int8", frozen="int8")
    monkeypatch.setattr(verify, "HIGHEST", 126)
    with pytest.raises(CheckError, match="gradients differ"):
        program.check(steps=1)


def test_check_has_a_bound_for_what_rounding_changes() -> None:
    bf16, both = (verify.Rounding(frozenset("w"), frozenset(i)) for i in ("", "w"))
    for rounding, most in ((bf16, 0.1), (both, 0.5)):
        rounding.check(most)
        with pytest.raises(CheckError, match="change the gradient by"):
            rounding.check(most + 0.01)
    with pytest.raises(CheckError, match="products of bf16 change the gradient by nan %"):
        bf16.check(float("nan"))


def test_the_report_counts_rounded_products() -> None:
    report = program_of("sparse-1", products="int8+bf16", frozen="int8").report()
    assert "linear layers and their gradients: 9 multiply int8, 17 multiply bf16" in report


@pytest.mark.slow
def test_the_portable_kernels_train_alike() -> None:
    ids = torch.arange(16).view(1, 16)
    losses = []
    for portable in (False, True):
        program = program_of("sparse-1", products="int8+bf16", frozen="q4_1", portable=portable)
        trainer = program.load()
        losses.append([trainer.step(ids, ids) for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_products_that_cannot_be() -> None:
    model, x = nn.Linear(32, 32), torch.zeros(16, 32)
    with pytest.raises(SchemeError, match='no products="fp8"'):
        whet.compile(model, (x,), products="fp8")
    with pytest.raises(SchemeError, match="needs frozen weights that are stored as integers"):
        whet.compile(model, (x,), products="int8")
    with pytest.raises(SchemeError, match="stored as integers") as error:
        whet.compile(model, (x,), products="int8", frozen="kmeans4")
    assert error.value.why == ("codebooks hold floats",)
    with pytest.raises(SchemeError, match="is for a float program"):
        whet.compile(model, (x,), products="bf16", dtype="int8", calibrate=[x])
    with pytest.warns(UserWarning, match="no product is of bf16: no linear layer has 16 rows"):
        whet.compile(model, (x[:4],), products="bf16")


@pytest.mark.parametrize("products", ["bf16", "int8"])
def test_a_row_that_is_not_finite_shows(products: str) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    x = torch.randn(16, 32)
    program = whet.compile(model, (x,), loss="mse", update="last", products=products, frozen="int8")
    x[3, 5] = torch.inf
    y = program.load().predict(x)
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, 0)).all()
