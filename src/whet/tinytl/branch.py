"""The lite residual: a small branch beside a block, at half the resolution (arXiv:2007.11622)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import FrontendError
from .blocks import Block

NAME = "lite"  # of the branch inside its block: what the scheme "lite" trains
PER_GROUP = 8  # channels that are normalised together


class LiteResidual(nn.Module):
    """Pool, filter in groups, normalise, ReLU, mix, normalise, and stretch to the block's size.

    The scale of the last normalisation is 0 at first, so that the branch adds nothing until it has
    learned something.
    """

    def __init__(self, block: Block, width: float = 1 / 6, kernel: int = 5, groups: int = 2):
        super().__init__()
        taken, given = block.taken, block.given
        inside = max(2, 2 * round(block.inner * width / 2))
        groups = math.gcd(groups, math.gcd(taken[1], inside))
        side = min(taken[-2:])
        self.pool = nn.AvgPool2d(2) if side > 1 else nn.Identity()
        kernel = min(kernel, odd(side // 2 if side > 1 else 1))
        self.filter = nn.Conv2d(
            taken[1], inside, kernel, block.stride, kernel // 2, groups=groups, bias=False
        )
        self.norm = group_norm(inside)
        self.mix = nn.Conv2d(inside, given[1], 1, bias=False)
        self.scale = group_norm(given[1])
        self.size = tuple(given[-2:])
        nn.init.zeros_(self.scale.weight)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm(self.filter(self.pool(x))))
        y = self.scale(self.mix(y))
        return functional.interpolate(y, self.size, mode="bilinear", align_corners=False)


def odd(number: int) -> int:
    """The largest odd number that is not larger."""
    return max(1, number - (number + 1) % 2)


def group_norm(channels: int) -> nn.GroupNorm:
    """As many channels in a group as divide them, up to eight."""
    together = max(n for n in range(1, PER_GROUP + 1) if channels % n == 0)
    return nn.GroupNorm(channels // together, channels)


class Chain(nn.Sequential):
    """A Sequential that has a branch: its modules one after the other, without that one."""

    def __iter__(self) -> Iterator[nn.Module]:
        return (module for name, module in self.named_children() if name != NAME)


def attach(model: nn.Module, block: Block, branch: LiteResidual) -> None:
    """Put a branch into a block; the names of all other parameters stay as they are."""
    module = model.get_submodule(block.name)
    if type(module).forward is nn.Sequential.forward:
        chain = Chain(OrderedDict(module.named_children()))
        chain.train(module.training)
        parent, _, own = block.name.rpartition(".")
        setattr(model.get_submodule(parent), own, chain)
        module = chain
    module.add_module(NAME, branch)
    module.register_forward_hook(joined)


def joined(block: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
    """What a block with a branch gives."""
    added: Tensor = block.get_submodule(NAME)(args[0])
    return result + added


def branches(model: nn.Module) -> dict[str, LiteResidual]:
    """By the name of their block."""
    return {
        name.removesuffix(f".{NAME}"): module
        for name, module in model.named_modules()
        if isinstance(module, LiteResidual)
    }


def load_branches(model: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """What branches learned elsewhere, by the names of parameters."""
    own = {k: v for k, v in state.items() if f".{NAME}." in k}
    missing = {n for n, _ in model.named_parameters() if f".{NAME}." in n} - own.keys()
    if missing or not own:
        names = ", ".join(sorted(missing)[:3])
        raise FrontendError("the given state is not of these branches", why=f"it has no {names}")
    model.load_state_dict(own, strict=False)
