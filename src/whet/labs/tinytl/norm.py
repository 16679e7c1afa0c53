"""Replace batch norm by group norm, which normalises every sample separately.

The weights of the preceding convolution are standardised, as the two go together
(arXiv:1903.10520). What batch norm has learned is kept as far as possible: its scale and bias or,
given samples, those that preserve every channel's mean and variance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import FrontendError
from ..common.blocks import as_in_use, hooked
from .branch import group_norm

EPSILON = 1e-5


def to_group_norm(model: nn.Module, calibrate: Iterable[Tensor], x: Tensor) -> None:
    """Replace every batch norm of the model, in place."""
    batches = list(calibrate)
    if not all(isinstance(b, Tensor) for b in batches):
        raise FrontendError("calibrate= takes batches of inputs", try_="calibrate=[x, ...]")
    samples = torch.cat(batches) if batches else None
    before = statistics(model, samples) if samples is not None else {}
    standardise(model, x)
    new: dict[nn.Module, nn.GroupNorm] = {}
    for name, old in list(model.named_modules(remove_duplicate=False)):
        if isinstance(old, nn.BatchNorm2d):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, new.setdefault(old, like(old)))
    if samples is not None:
        match(model, samples, before)


def like(old: nn.BatchNorm2d) -> nn.GroupNorm:
    """A group norm with the scale and bias of a batch norm."""
    new = group_norm(old.num_features)
    if old.affine:
        new.weight.data.copy_(old.weight.data)
        new.bias.data.copy_(old.bias.data)
    return new.eval()


def standardise(model: nn.Module, x: Tensor) -> None:
    """Standardise the weights before each batch norm: mean 0, variance 1 per channel."""
    made: dict[int, nn.Conv2d] = {}
    kept: list[Any] = []  # keeps ids unique

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        conv = made.get(id(args[0])) if isinstance(module, nn.BatchNorm2d) else None
        if conv is not None and conv.weight[0].numel() > 1:
            flat = conv.weight.data.flatten(1)
            spread = flat.var(1, unbiased=False, keepdim=True)
            flat = (flat - flat.mean(1, keepdim=True)) * torch.rsqrt(spread + EPSILON)
            conv.weight.data = flat.view_as(conv.weight)

    def leave(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(module, nn.Conv2d):
            made[id(result)] = module
            kept.append(result)

    with hooked(model, enter, leave), as_in_use(model), torch.no_grad():
        model(x)


def statistics(model: nn.Module, samples: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and standard deviation of each batch norm's output, per channel."""
    names = {module: name for name, module in model.named_modules()}
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def leave(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(module, nn.BatchNorm2d):
            found[names[module]] = moments(result)

    with hooked(model, lambda *_: None, leave), as_in_use(model), torch.no_grad():
        model(samples)
    return found


def match(model: nn.Module, samples: Tensor, wanted: dict[str, tuple[Tensor, Tensor]]) -> None:
    """In one pass: each norm is set when the samples reach it, given those before it."""
    names = {module: name for name, module in model.named_modules()}

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        if not isinstance(module, nn.GroupNorm) or names[module] not in wanted:
            return
        plain = nn.functional.group_norm(args[0], module.num_groups, eps=module.eps)
        if plain[:, 0].numel() == 1:
            return  # a single number has no variance
        (mean, deviation), (own, spread) = wanted[names[module]], moments(plain)
        scale = torch.where(spread > EPSILON, deviation / spread, module.weight.data)
        module.weight.data.copy_(scale)
        module.bias.data.copy_(mean - module.weight.data * own)

    with hooked(model, enter, lambda *_: None), as_in_use(model), torch.no_grad():
        model(samples)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((0, 2, 3)), x.std((0, 2, 3), unbiased=False)
