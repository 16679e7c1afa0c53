"""Numbers in fewer than 32 bits: models in float16 or bfloat16, and buffers in whatever they are.

A program trains in float32. The numbers that a model starts from are exactly those it has, and
`load_state_dict` rounds what comes back to the type that a parameter has in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import torch
from torch import nn

from ...errors import warn

HALVES = (torch.float16, torch.bfloat16)
SMALL = 1 << 14  # bytes that nobody needs to be told about
SHOWN = 3


def widen(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Give a model in float16 or bfloat16 parameters and buffers in float32, in place.

    Buffers of a model whose parameters are float32 keep their type: they are read by operations
    that PyTorch itself computes, in that type.
    """
    if not any(p.dtype in HALVES for p in model.parameters()):
        return
    for tensor in chain(model.parameters(), model.buffers()):
        if tensor.dtype in HALVES:
            tensor.grad = None
            tensor.data = tensor.data.float()
    for state in optimizer.state.values():
        for key, held in state.items():
            state[key] = single(held) if isinstance(held, torch.Tensor) else held


def convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Like `model.to(dtype)`, but what is computed from buffers in halves is rounded as before."""
    kept = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if buffer.dtype in HALVES
    ]
    model.to(dtype)
    for module, name, buffer in kept:
        setattr(module, name, buffer)


def single(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in float32, if they were in float16 or bfloat16."""
    return x.float() if x.dtype in HALVES else x


def tell_widened(buffers: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Warn about buffers that a program stores in more bits than the model does.

    Packed or quantized weights are folded into the numbers that they stand for.
    """
    kept = [(name, t) for name, t in buffers if t.element_size() < 4 and t.dtype != torch.bool]
    if sum(t.nbytes for _, t in kept) < SMALL:
        return
    described = [f"{name} ({str(t.dtype).removeprefix('torch.')})" for name, t in kept[:SHOWN]]
    more = f" and {len(kept) - SHOWN} more" if len(kept) > SHOWN else ""
    warn(
        f"buffers become 32-bit numbers in the program: {', '.join(described)}{more}; weights that "
        'do not train are stored in 8 bits if they are parameters, with frozen="int8"'
    )
