"""A student and a teacher of a few hundred parameters, with layers to compare."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

X = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 1])


def net(channels: int, seed: int = 0, classes: int = 3, stride: int = 2) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        OrderedDict(
            first=nn.Conv2d(1, channels, 3, stride, 1),
            act=nn.ReLU(),
            second=nn.Conv2d(channels, channels, 3, padding=1),
            seen=nn.ReLU(),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            head=nn.Linear(channels, classes),
        )
    )


def student(seed: int = 0) -> nn.Sequential:
    return net(4, seed)


def teacher(seed: int = 1, classes: int = 3, stride: int = 2) -> nn.Sequential:
    return net(6, seed, classes, stride)


def blobs(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes of images, each bright in another place, with noise."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    x = torch.randn(count, 1, 8, 8, generator=generator)
    for k in range(3):
        x[y == k, :, 2 * k + 1 : 2 * k + 3, 2 * k + 1 : 2 * k + 3] += 3
    return x, y
