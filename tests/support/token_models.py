"""Small models over tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tokens(nn.Module):
    """A parameter that is repeated for every sample, and one that is added to all."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.place = nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 3)
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place + self.shift
        return self.head(self.layer(x)[:, 0])


class Tied(nn.Module):
    """An embedding whose table is also the output layer, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.middle = nn.Linear(4, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(torch.tanh(self.middle(self.table(ids)))).transpose(1, 2)
