"""Integer programs of small networks, compiled and trained."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whet

DATA = os.environ.get("WHET_DATA")


needs_data = pytest.mark.skipif(
    DATA is None, reason="pretrained int8 networks and pictures are found through WHET_DATA"
)


def convolution(i: int, o: int, k: int = 3, **kwargs: Any) -> nn.Sequential:
    conv = nn.Conv2d(i, o, k, padding=k // 2, bias=False, **kwargs)
    return nn.Sequential(conv, nn.BatchNorm2d(o), nn.ReLU6())


class Residual(nn.Module):
    """An inverted bottleneck between a stem and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = convolution(3, 8, stride=2)
        self.block = nn.Sequential(
            convolution(8, 16, 1), convolution(16, 16, 5, groups=16), nn.Conv2d(16, 8, 1)
        )
        self.last = nn.Conv2d(8, 12, 1)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.last(x + self.block(x))
        return self.head(x.mean((2, 3)))


class Branches(nn.Module):
    """Concatenation, padding, pooling, resampling, a clamp alone, and one float operator."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(3, 5, 1)
        self.c, self.d = nn.Conv2d(11, 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.dense, self.head = nn.Linear(8 * 9, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([torch.relu(self.a(x)), self.b(x)], 1)
        y = self.c(nn.functional.pad(y, (1, 0, 1, 0)))
        z = nn.functional.interpolate(y, scale_factor=2.0)
        z = nn.functional.interpolate(z, size=y.shape[2:], mode="bilinear")
        y = nn.functional.max_pool2d(torch.relu(y + self.d(z)), 2)
        y = torch.sigmoid(self.dense(torch.clamp(y, -1, 1).flatten(1)))
        return self.head(nn.functional.hardtanh(y, 0.0, 0.75))


def trained(model: nn.Module, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """With statistics and affine parameters that are not ones and zeros."""
    torch.manual_seed(seed)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()  # whatever was drawn before
    model.train()
    for _ in range(3):
        model(torch.randn(8, *shape[1:]))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.3)
    return model.eval()


def examples(shape: tuple[int, ...], count: int = 2, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, *shape[1:], generator=generator) for _ in range(count)]


def compiled(
    model: nn.Module, shape: tuple[int, ...], dtype: str | whet.Int8 = "int8", **kwargs: Any
) -> whet.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of operators that stay in float32
        return whet.compile(
            model, (torch.zeros(shape),), dtype=dtype, calibrate=examples(shape), **kwargs
        )


SMALL = {"residual": (Residual, (2, 3, 16, 16)), "branches": (Branches, (1, 3, 12, 12))}


class Norms(nn.Module):
    """What folding and calibration find hard: a dead channel, a zero branch, a shared layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.c, self.m = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.twice = nn.Conv2d(8, 8, 1)
        self.h1, self.h2 = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.n(self.a(x)))
        x = x + self.m(self.c(x))
        x = self.twice(torch.relu(self.twice(x))).mean((2, 3))
        return self.h1(x) + self.h2(x)


def norms(shape: tuple[int, ...]) -> Norms:
    model = trained(Norms(), shape)
    assert isinstance(model, Norms)
    with torch.no_grad():
        model.n.weight[:3] = 1e-10
        model.n.bias.fill_(0.7)
        model.m.weight.zero_()
        model.m.bias.zero_()
    return model
