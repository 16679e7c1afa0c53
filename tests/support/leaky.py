"""Networks and pictures small enough to attack within a test."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import whet
from whet.labs.privacy import Observation, observe


def sigmoid_net(channels: int = 1, side: int = 8, classes: int = 4, seed: int = 0) -> nn.Module:
    """The LeNet of the DLG paper in small, drawn as there."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1), nn.Sigmoid(),
        nn.Conv2d(6, 6, 3, stride=2, padding=1), nn.Sigmoid(),
        nn.Flatten(), nn.Linear(6 * (side // 2) ** 2, classes),
    ).eval()  # fmt: skip
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def picture(batch: int = 1, channels: int = 1, side: int = 8, seed: int = 1) -> Tensor:
    """Smooth shapes between 0 and 1."""
    random = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, channels, side // 2, side // 2, generator=random)
    smooth: Tensor = nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    return smooth


def seen(model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> Observation:
    """What a program compiled from the model sends."""
    program = whet.compile(model, (x,), accumulate=True, **options)
    return observe(program, x, y)


def in_torch(model: nn.Module, x: Tensor, y: Tensor) -> Observation:
    """The same without a program, for tests of what comes after it."""
    loss = nn.CrossEntropyLoss()
    named = dict(model.named_parameters())
    output = model(x)
    found = torch.autograd.grad(loss(output, y), list(named.values()))
    gradients = {n: g.numpy() for n, g in zip(named, found, strict=True)}
    return Observation(gradients, model, loss, tuple(x.shape), output.shape[-1])
