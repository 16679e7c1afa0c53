"""`keep_largest`, an operator that PyTorch does not have: activations without the small ones."""

from __future__ import annotations

from typing import Any

import torch

from ....ops.largest import PickLargest, Spread
from ...model import Tensor, plain_order
from ..importer import Importer, aten


@torch.library.custom_op("whet::keep_largest", mutates_args=())
def keep_largest(x: torch.Tensor, keep: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `keep` elements of largest magnitude in each sample, others 0, and their positions."""
    last = x.movedim(1, -1) if x.ndim > 2 else x  # ties: the first, in stored order
    flat = last.flatten(1).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    index = flat.argsort(stable=True, dim=1, descending=True)[:, :keep]
    kept = torch.zeros_like(flat, dtype=torch.bool).scatter(1, index, True).view(last.shape)
    kept = kept.movedim(-1, 1).contiguous() if x.ndim > 2 else kept
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
    """Only the kept values are stored; the full tensor is rebuilt where it is read."""
    order = (0, *range(2, x.rank), 1) if x.rank > 2 else plain_order(x.rank)
    value = m.stored(x, order)
    values, bits = m.b.emit_all(PickLargest, value, keep=int(keep), name=f"{m.name}.kept")
    y = m.b.emit(Spread, values, bits, shape=value.shape, name=m.name)
    return Tensor(y, order), None
