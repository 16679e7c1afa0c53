"""Models of a few hundred parameters, and PyTorch's own training step to compare with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


def mlp(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        OrderedDict(fc1=nn.Linear(5, 8), act=nn.Tanh(), fc2=nn.Linear(8, 3))
    ).eval()


class ConvNet(nn.Module):
    """Every layout there is: full, grouped and depthwise filters, a residual, pooling, a head."""

    def __init__(self, norm: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=not norm)
        self.bn = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.grouped = nn.Conv2d(4, 4, 1, groups=2)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(4 * 3 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        x = x + self.grouped(torch.relu(self.depthwise(x)))
        return self.head(self.drop(self.pool(x).flatten(1)))


def convnet(seed: int = 0, norm: bool = True, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    return ConvNet(norm, dropout)


class TwoUses(nn.Module):
    """A layer whose weight has another use too, so that it does not train by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)) * self.first.weight.sum(0))


def vectors(batch: int = 4, seed: int = 1) -> Iterator[Batch]:
    """Batches for `mlp`, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(batch, 5, generator=generator)
        yield x, torch.randint(3, (batch,), generator=generator)


def images(batch: int = 2, seed: int = 1) -> Iterator[Batch]:
    """Batches for `convnet`, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(batch, 3, 6, 4, generator=generator)
        yield x, torch.randint(3, (batch,), generator=generator)


def torch_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    loss: Callable[[Any, Any], Tensor] = nn.functional.cross_entropy,
    clip_norm: float | None = None,
) -> float:
    optimizer.zero_grad()
    value = loss(model(x), y)
    value.backward()
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    return value.item()


def assert_same(trainer: Any, model: nn.Module, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """Every trained parameter and every running statistic is what PyTorch has."""
    ours, theirs = trainer.state_dict(), model.state_dict()
    assert ours, "nothing to compare"
    torch.testing.assert_close(ours, {n: theirs[n] for n in ours}, rtol=rtol, atol=atol)
