"""Dynamic activation pruning: layers read, and keep, only the largest of their inputs.

This is the baseline of arXiv:2007.11622. Compile with `rematerialize=True`: what is kept for the
backward pass is then a list of values and one bit per element.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import nn

from ...errors import FrontendError
from ...frontend.torch.aten.largest import keep_largest
from ..common.blocks import as_in_use, hooked, run


def prune_activations(model: nn.Module, x: torch.Tensor, share: float) -> nn.Module:
    """A copy of `model` whose convolutions, except the first, read that share of each sample."""
    if not 0 < share <= 1:
        raise FrontendError(f"share={share} is not a fraction of activations", try_="share=0.25")
    found = copy.deepcopy(model)
    order: list[nn.Module] = []

    def leave(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        if isinstance(module, nn.Conv2d):
            order.append(module)

    with hooked(found, lambda *_: None, leave), as_in_use(found), torch.no_grad():
        run(found, x)
    for module in dict.fromkeys(order[1:]):
        module.register_forward_pre_hook(partial(pruned, share))
    return found


def pruned(
    share: float, module: nn.Module, args: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    keep = max(1, int(share * args[0][0].numel()))
    return (keep_largest(args[0], keep)[0], *args[1:])
