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
