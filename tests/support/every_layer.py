"""A network with every kind of layer, and PyTorch's optimizers for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EveryLayer(nn.Module):
    """Every kind of layer, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.grouped = nn.Conv2d(4, 6, 1, groups=2)
        self.up = nn.ConvTranspose2d(6, 4, 2)
        self.twice = nn.Linear(5, 5)
        self.head = nn.Linear(4 * 5 * 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.depthwise(torch.relu(self.stem(x))))
        x = self.up(torch.relu(self.grouped(x)))
        x = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        return self.head(x.flatten(1))
