"""Real models, brought into a state in which a comparison of gradients means something."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import whet
from whet.report import CheckReport

torch.set_num_threads(1)  # tests run side by side


def declare_vision_operators() -> list[torch.library.Library]:
    """timm and transformers import torchvision, whose C++ part fits one torch only.

    Nothing here calls these two operators, but without them the import fails.
    """
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return [library]
    return []


LIBRARIES = declare_vision_operators()  # they last as long as something holds them


def prepared(model: nn.Module, *inputs: Tensor, seed: int = 0) -> nn.Module:
    """Neither ones and zeros in the affine layers, nor statistics of data it has never seen.

    Layers that scale what they add (layer scale, zero-initialised residuals) start so small that
    nothing behind them would have a gradient, and attention starts by looking at all alike.
    """
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim <= 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
        elif parameter.ndim == 2 and parameter.std() < 0.03:
            parameter.data *= 5
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()):
        model.train()
        with torch.no_grad():
            for _ in range(4):
                model(*(noise(x, max(8, len(x))) for x in inputs))
    return model.eval()


def noise(like: Tensor, batch: int) -> Tensor:
    return torch.randn(batch, *like.shape[1:]) if like.is_floating_point() else like


def agreement(model: nn.Module, *inputs: Tensor, lr: float = 1e-3, **options: Any) -> CheckReport:
    """Ten steps of SGD with momentum in C and in PyTorch; the report is shown if a test fails."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    program = whet.compile(model, inputs, optimizer=optimizer, accumulate=True, **options)
    report = program.check()
    print(f"{type(model).__name__}: {report}")  # noqa: T201
    return report
