"""The factors of LoRA in PyTorch's copy of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from ..ir import Array, Factors
from ..runtime import Trainer


@dataclass(frozen=True)
class Beside:
    """Two factors of a program with their numbers, and whether PyTorch's weight is [in, out]."""

    factors: Factors
    numbers: tuple[Array, ...]
    turned: bool


class Sum(nn.Module):
    """The weight and the scaled product."""

    def __init__(self, down: nn.Parameter, up: nn.Parameter, scale: float, turned: bool) -> None:
        super().__init__()
        self.down, self.up, self.scale, self.turned = down, up, scale, turned

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        product = self.scale * (self.up @ self.down)
        whole = weight + (product.T if self.turned else product)
        whole.whet_parts = weight, self  # type: ignore[attr-defined]  # for products.py
        return whole


def beside(trainer: Trainer) -> list[Beside]:
    """The factors that a program trains, as they are now."""
    arrays, program = trainer.arrays(), trainer.program
    return [
        Beside(own, tuple(arrays[n] for n in own.names), own.turned != moved)
        for name, own in program.factors.items()
        if own.names[1] in arrays
        for moved in [program.tensors[name].order == (1, 0)]
    ]


def shaken(trainer: Trainer) -> None:
    """Let the second factors start from random numbers: the gradient of the first is theirs."""
    random = np.random.default_rng(0)
    arrays = trainer.arrays()
    ends = [own.names[1] for own in trainer.program.factors.values() if own.names[1] in arrays]
    shapes = {name: arrays[name].shape for name in ends}
    trainer.load_state_dict(
        {n: (0.1 * random.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    )


def adapted(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Mapping[str, nn.Parameter],
    factors: Iterable[Beside],
) -> dict[str, nn.Parameter]:
    """Put factors beside weights of the model; they join the optimizer and are returned by name."""
    found: dict[str, nn.Parameter] = {}
    for own in factors:
        weight = weights[own.factors.parameter]
        down, up = (nn.Parameter(torch.from_numpy(array.copy())) for array in own.numbers)
        found.update(zip(own.factors.names, (down, up), strict=True))
        for module, name in places(model, weight):
            whole = Sum(down, up, own.factors.scale, own.turned)
            parametrize.register_parametrization(module, name, whole, unsafe=True)
        group_of(optimizer, weight)["params"] += [down, up]
    return found


def places(model: nn.Module, weight: nn.Parameter) -> list[tuple[nn.Module, str]]:
    """The modules that have the weight, and what they call it."""
    return [
        (module, name)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter is weight
    ]


def group_of(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> dict[str, Any]:
    """The group that updates a weight; the first for one that is in none."""
    groups = optimizer.param_groups
    return next((g for g in groups if any(p is weight for p in g["params"])), groups[0])
