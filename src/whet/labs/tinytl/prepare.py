"""Prepare a pretrained CNN for memory-efficient transfer learning (arXiv:2007.11622)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from ...errors import FrontendError
from ..common.blocks import find_blocks
from .branch import LiteResidual, attach, load_branches
from .branch import branches as has_branches
from .norm import to_group_norm


def prepare(
    model: nn.Module,
    x: torch.Tensor,
    *,
    lite_residual: bool = True,
    blocks: Sequence[str] = (),
    width: float = 1 / 6,
    kernel: int = 5,
    groups: int = 2,
    norm: str = "frozen",
    calibrate: Iterable[torch.Tensor] = (),
    bits: int | None = None,
    branches: Mapping[str, torch.Tensor] | None = None,
    seed: int = 0,
) -> nn.Module:
    """A copy of `model`, in eval mode, with a lite residual branch beside every block.

    `x` is an example input. Blocks are found by their structure; `blocks` names them explicitly. A
    branch has `width` of its block's inner channels. With `norm="frozen"`, batch norm keeps its
    statistics, so that the copy computes the same function until something is trained.
    `norm="group"` replaces it by group norm with standardised weights, set so that every channel
    keeps its mean and variance over the batches of `calibrate`. `bits=8` rounds the weights of the
    model, with one scale per output channel, so that `compile(..., frozen="int8")` can store them
    in bytes. `branches` is an initial state for the branches, such as the `state_dict()` of a copy
    trained on other data; without it they are random and contribute nothing.
    """
    check_words(norm, bits, width, kernel, groups)
    if lite_residual and (old := has_branches(model)):
        raise FrontendError(
            f"{next(iter(old)) or 'the model'} already has a lite_residual",
            try_="prepare the original model",
        )
    if isinstance(calibrate, torch.Tensor):
        raise FrontendError("calibrate= takes batches", try_="calibrate=[x]")
    batches = list(calibrate)
    if (batches and norm != "group") or (branches is not None and not lite_residual):
        raise FrontendError(
            'calibrate= is for norm="group", and branches= for lite_residual=True',
            why="the argument would have no effect",
        )
    found = copy.deepcopy(model).eval()
    if norm == "group":
        to_group_norm(found, batches, x)
    if bits is not None:
        round_weights(found, bits)
    if lite_residual:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for block in find_blocks(found, x, blocks):
                attach(found, block, LiteResidual(block, width, kernel, groups).eval())
        if branches is not None:
            load_branches(found, branches)
    return found


def check_words(norm: str, bits: int | None, width: float, kernel: int, groups: int) -> None:
    if norm not in ("frozen", "group"):
        raise FrontendError(f"norm={norm!r} is not valid", try_=("frozen", "group"))
    if bits is not None and bits not in range(2, 9):
        raise FrontendError(f"weights cannot be rounded to {bits} bits", try_="bits=8")
    if not (0 < width <= 1) or kernel < 1 or kernel % 2 == 0 or groups < 1:
        raise FrontendError(
            f"width={width}, kernel={kernel}, groups={groups} do not make a valid branch",
            try_="a width above 0 and up to 1, an odd kernel, one group or more",
        )


def round_weights(model: nn.Module, bits: int) -> None:
    """Round weights to evenly spaced values around 0, per output channel, in place."""
    most = 2 ** (bits - 1) - 1
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            flat = module.weight.data.flatten(1)
            scale = (flat.abs().amax(1, keepdim=True) / most).clamp(min=1e-12)
            module.weight.data = ((flat / scale).round() * scale).view_as(module.weight)
