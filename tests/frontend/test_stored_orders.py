"""Matrices of products x w are weights of linear layers, stored as the layers read them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

import whet
from whet.ir import Role


class Conv1D(nn.Module):
    """What GPT-2 calls its linear layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return y.view(*x.shape[:-1], self.weight.shape[1])


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = Conv1D(20, 33), Conv1D(33, 20)
        self.last = nn.Parameter(torch.randn(20, 5))

    def forward(self, x: Tensor) -> Tensor:
        return (self.down(torch.tanh(self.up(x))) @ self.last).mean(1)


X = torch.randn(2, 70, 20, generator=torch.Generator().manual_seed(0))


def compiled(model: nn.Module, **options: object) -> whet.Program:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return whet.compile(model, (X,), optimizer=optimizer, **options)  # type: ignore[arg-type]


def test_products_with_a_matrix_are_linear_layers() -> None:
    """Nothing is transposed while the program runs, and PyTorch gets its shapes back."""
    model = Products()
    program = compiled(model)
    ops = Counter(node.op.name for g in program.entries.values() for node in g.nodes)
    assert not ops["bmm"] and not ops["transpose"]
    shapes = {v.name: v.shape for v in program.entries["train_step"].leaves_of(Role.PARAM)}
    assert shapes["up.weight"] == (33, 20) and shapes["last"] == (5, 20)
    program.check()
    state = program.load().state_dict()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(state[name], parameter.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("rule", [whet.Rule("up.weight", 0.5), whet.Rule("down.weight", (0, 7))])
def test_some_of_their_inputs_can_train(rule: whet.Rule) -> None:
    compiled(Products(), update=whet.Scheme([rule])).check()


def test_frozen_they_are_stored_in_bytes() -> None:
    """With a scale for each output, a column of the matrix."""
    model = Products()
    for layer in (model.up, model.down):
        scale = layer.weight.detach().abs().amax(0) / 127
        layer.weight.data = (layer.weight.detach() / scale).round() * scale
    program = compiled(model, update=whet.Scheme([whet.Rule("last")]), frozen="int8")
    graph = program.entries["train_step"]
    narrow = {v.shape for v in graph.leaves if v.type.dtype.label == "i8"}
    assert narrow and narrow <= {(33, 20), (20, 33)}
    program.check()


class Tied(nn.Module):
    """One matrix for both directions: it can only be stored in one order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(20, 9))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(x @ self.w) @ self.w.T).mean(1)


def test_a_matrix_for_both_directions() -> None:
    program = compiled(Tied())
    (w,) = (v for v in program.entries["train_step"].leaves if v.name == "w")
    assert w.shape == (20, 9)
    program.check()


class Noisy(nn.Module):
    """Other operators read the matrix in training and in prediction."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(20, 9))

    def forward(self, x: Tensor) -> Tensor:
        w = self.w if not self.training else self.w * torch.where(self.w > 0, 1.0, 0.5)
        return (x @ w).mean(1)


def test_training_and_prediction_store_it_alike() -> None:
    model = Noisy().train()
    program = compiled(model)
    for graph in program.entries.values():
        assert {v.shape for v in graph.leaves if v.name == "w"} <= {(20, 9)}
    y = program.load().predict(X)
    torch.testing.assert_close(torch.as_tensor(y), model.eval()(X).detach(), rtol=1e-5, atol=1e-5)
