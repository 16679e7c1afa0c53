"""Ordinary networks as integer programs: checked, and what stays in float32 is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from test_integer import compiled, trained


def between(*layers: nn.Module) -> nn.Sequential:
    """Behind a first convolution, and before the mean over images that a head reads."""
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *layers, *pool, nn.Linear(8, 4))


class Largest(nn.Module):
    """Over channels: one number decides which others count."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0.1, x, x.max(1, keepdim=True)[0])


DECIDING: dict[str, Any] = {
    "average-beyond": lambda: nn.AvgPool2d(2, ceil_mode=True),
    "average-padded": lambda: nn.AvgPool2d((4, 3), (3, 2), 1, ceil_mode=True),
    "average-inside": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average-divided": lambda: nn.AvgPool2d(2, ceil_mode=True, divisor_override=9),
    "reflect": lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
    "prelu": lambda: nn.PReLU(8),
    "largest": Largest,
}


@pytest.mark.parametrize("name", DECIDING)
def test_pools_that_round_up_indices_and_decisions_are_checked(name: str) -> None:
    shape = (2, 3, 11, 12)
    model = trained(between(DECIDING[name](), nn.Conv2d(8, 8, 1)), shape)
    report = compiled(model, shape, portable=True).check(3)
    assert set(report.gradients) == {name for name, _ in model.named_parameters()}
    assert report.worst_gradient[1] < 2e-6
    assert report.rounded == () and all(a == b for a, b in report.losses)
