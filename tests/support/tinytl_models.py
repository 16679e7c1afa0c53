"""A short network and pictures for TinyTL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from whet import models


def pretrained(net: nn.Module) -> nn.Module:
    """As if it had been: norms with statistics, scales and biases of their own."""
    generator = torch.Generator().manual_seed(1)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in (
                (module.running_mean, -0.1, 0.1), (module.running_var, 0.5, 2.0),
                (module.weight.data, 0.5, 1.5), (module.bias.data, -0.2, 0.2),
            ):  # fmt: skip
                assert tensor is not None
                tensor.uniform_(low, high, generator=generator)
    return net.eval()


def small(classes: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return pretrained(models.mobilenet_v2(classes, width=0.35, dropout=0.0))


def short(classes: int = 5) -> nn.Module:
    """The first five blocks of it."""
    model: Any = small()
    model.features = model.features[:6]
    model.classifier[1] = nn.Linear(model.features[5].conv[-1].num_features, classes)
    return model.eval()


def pictures(batch: int = 2, side: int = 32) -> Tensor:
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(2))
