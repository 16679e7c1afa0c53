"""The lite residual: a small branch beside a block, at half the resolution (arXiv:2007.11622)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import FrontendError
from ..common.blocks import Block

NAME = "lite_residual"  # name of the branch inside its block: what the scheme "lite" trains
PER_GROUP = 8  # channels normalised together


class LiteResidual(nn.Module):
    """Pool, filter in groups, normalise, ReLU, mix, normalise, and resize to the block's output.

    The scale of the last normalisation starts at 0, so that the branch contributes nothing until it
    has been trained.
    """

    def __init__(
        self, block: Block, width: float = 1 / 6, kernel: int = 5, groups: int = 2
    ) -> None:
        super().__init__()
        taken, given = block.taken, block.given
        inside = max(2, 2 * round(block.inner * width / 2))
        groups = math.gcd(groups, math.gcd(taken[1], inside))
        sides = [max(1, side // 2) for side in taken[-2:]]  # after pooling
        self.pool = nn.AvgPool2d(2) if min(taken[-2:]) > 1 else nn.Identity()
        kernel = min(kernel, odd(min(sides)))
        self.filter = nn.Conv2d(
            taken[1], inside, kernel, block.stride, kernel // 2, groups=groups, bias=False
        )
        pixels = math.prod(-(-side // block.stride) for side in sides)
        self.norm = group_norm(inside, pixels)
        self.mix = nn.Conv2d(inside, given[1], 1, bias=False)
        self.scale = group_norm(given[1], pixels)
        nn.init.zeros_(self.scale.weight)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        """The branch's output for a block with input `x` and an output of that size."""
        y = functional.relu(self.norm(self.filter(self.pool(x))))
        y = self.scale(self.mix(y))
        return functional.interpolate(y, tuple(size), mode="bilinear", align_corners=False)


def odd(number: int) -> int:
    """The largest odd number that is not larger."""
    return max(1, number - (number + 1) % 2)


def group_norm(channels: int, pixels: int = 2) -> nn.GroupNorm:
    """Up to eight channels per group, dividing the total; all of them if a group had one number."""
    together = max(n for n in range(1, PER_GROUP + 1) if channels % n == 0)
    return nn.GroupNorm(channels // together if together * pixels > 1 else 1, channels)


class Chain(nn.Sequential):
    """A Sequential with a branch: runs its modules in sequence, except the branch."""

    def __iter__(self) -> Iterator[nn.Module]:
        own = ((name, module) for name, module in self._modules.items() if module is not None)
        return (module for name, module in own if name != NAME)


def chain_of(kind: type[nn.Sequential]) -> type[nn.Sequential]:
    """The same for a subclass of Sequential."""
    return Chain if kind is nn.Sequential else type(f"{kind.__name__}WithBranch", (Chain, kind), {})


def attach(model: nn.Module, block: Block, branch: LiteResidual) -> None:
    """Add a branch to a block; the names of all other parameters are unchanged."""
    module = model.get_submodule(block.name)
    if hasattr(module, NAME):
        raise FrontendError(f"{block.name or 'the model'} already has a {NAME}", why="of its own")
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        module.__class__ = chain_of(type(module))
    module.add_module(NAME, branch)
    module.register_forward_hook(joined)


def joined(block: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
    """The output of a block with a branch."""
    added: Tensor = block.get_submodule(NAME)(args[0], result.shape[-2:])
    return result + added


def branches(model: nn.Module) -> dict[str, LiteResidual]:
    """Branches by the name of their block."""
    return {
        name.removesuffix(NAME).removesuffix("."): module
        for name, module in model.named_modules()
        if isinstance(module, LiteResidual)
    }


def load_branches(model: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load trained branches, by parameter name."""
    for name, parameter in model.named_parameters():
        if NAME not in name.split("."):
            continue
        if name not in state or state[name].shape != parameter.shape:
            has = f"{name} of {tuple(state[name].shape)}" if name in state else f"no {name}"
            raise FrontendError(
                "the given state does not belong to these branches",
                why=f"it has {has}, and the branch one of {tuple(parameter.shape)}",
                try_="branches that were prepared for the same network, at the same resolution",
            )
        parameter.data.copy_(state[name])
