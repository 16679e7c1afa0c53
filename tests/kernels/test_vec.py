"""Kernels for vectors train as the portable ones do, and a program says which it is made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tiny
import whet
from whet.models import mcunet_5fps, resnet18


def small_mcunet() -> tuple[nn.Module, torch.Tensor]:
    return mcunet_5fps(10, folded=True).eval(), torch.randn(2, 3, 64, 64)


def small_resnet() -> tuple[nn.Module, torch.Tensor]:
    return resnet18(10).eval(), torch.randn(1, 3, 40, 40)


@pytest.mark.parametrize("make", [small_mcunet, small_resnet])
def test_twenty_steps_have_the_losses_of_the_portable_kernels(make: object) -> None:
    torch.manual_seed(0)
    assert callable(make)
    model, x = make()
    rate = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    labels = torch.arange(len(x))
    losses = []
    for portable in (True, False):
        trainer = whet.compile(model, (x,), optimizer=rate, portable=portable).load()
        losses.append([trainer.step(x, labels) for _ in range(20)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_a_portable_program_has_no_vectors_in_it() -> None:
    x, _ = next(tiny.images())
    fast, plain = (whet.compile(tiny.convnet(), (x,), portable=p) for p in (False, True))
    assert b"vector_size" in fast.files["kernels/whet_matmul.h"]
    assert b"-march=native" in fast.files["Makefile"]
    for name, content in plain.files.items():
        assert b"vector_size" not in content, name
        assert b"-march" not in content, name
    assert fast.fingerprint == plain.fingerprint, "a checkpoint fits both"


class Groups(nn.Module):
    """1x1, grouped, 1x1, depthwise, 1x1: what a stream may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 1), nn.ReLU(),
            nn.Conv2d(8, 12, 3, padding=1, groups=2), nn.ReLU(),
            nn.Conv2d(12, 16, 1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(),
            nn.Conv2d(16, 8, 1),
        )  # fmt: skip
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return y


@pytest.mark.parametrize("without", [(), ("stream_rows",), ("fuse_layers", "stream_rows")])
def test_frozen_weights_are_packed_for_the_kernels_that_read_them(without: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    model, x = Groups().eval(), torch.randn(2, 3, 9, 10)
    program = whet.compile(model, (x,), update="last", without=without)
    assert program.storage.packed == {f"body.{i}.weight" for i in (0, 4, 8)}
    streams = [n for n in program.entries["predict"].nodes if n.op.name == "stream"]
    assert bool(streams) == (not without)
    trainer = program.load()
    np.testing.assert_allclose(trainer.predict(x), model(x).detach(), atol=1e-6)
    trainer.step(x, torch.tensor([1, 2]))


def test_weights_that_train_or_have_other_readers_are_not_packed() -> None:
    torch.manual_seed(0)
    model, x = Groups().eval(), torch.randn(2, 3, 9, 10)
    bias = whet.compile(model, (x,), update="bias+last")  # gradients pass through body.4, body.8
    assert bias.storage.packed == {"body.0.weight"}
    assert not whet.compile(model, (x,), update="full").storage.packed
    assert not whet.compile(model, (x,), update="last", portable=True).storage.packed
