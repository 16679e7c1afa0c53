"""`keep_largest`, an operator that PyTorch does not have: activations without the small ones."""

from __future__ import annotations

from typing import Any

import torch

from ...ops.largest import PickLargest, Spread
from ..importer import Importer, aten
from ..tensor import Tensor


@torch.library.custom_op("whet::keep_largest", mutates_args=())
def keep_largest(x: torch.Tensor, keep: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `keep` elements of each sample that are furthest from 0, others 0; and where they are."""
    flat = x.flatten(1)
    index = flat.abs().topk(keep).indices
    kept = torch.zeros_like(flat, dtype=torch.bool).scatter(1, index, True).view_as(x)
    return torch.where(kept, x, torch.zeros_like(x)), kept


@keep_largest.register_fake
def _(x: torch.Tensor, keep: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def backward(ctx: Any, dy: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None]:
    (kept,) = ctx.saved_tensors
    return torch.where(kept, dy, torch.zeros_like(dy)), None


def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.save_for_backward(output[1])


keep_largest.register_autograd(backward, setup_context=setup)


@aten("whet.keep_largest.default")
def handler(m: Importer, x: Tensor, keep: int) -> tuple[Tensor, None]:
    """What is kept is short: the whole is made of it where it is read."""
    values, bits = m.b.emit_all(PickLargest, x.value, keep=int(keep), name=f"{m.name}.kept")
    y = m.b.emit(Spread, values, bits, shape=x.value.shape, name=m.name)
    return Tensor(y, x.order), None
