"""PyTorch: eager in two layouts, and compiled by inductor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from whet import models

from .case import RATE, Case


def build(case: Case) -> nn.Module:
    """The model with the case's weights, without first making random ones."""
    with torch.device("meta"):
        model: nn.Module = eval(case.make, vars(models))
    state = {name: torch.from_numpy(a) for name, a in case.tensors.items()}
    model.load_state_dict(state, assign=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in case.trained)
    return model.train(case.training)


def prepare(case: Case, threads: int, variant: str) -> Callable[[], float]:
    """Layers before the first that trains are not recorded: nothing there asks for a gradient."""
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    plain = variant == "contiguous_format"
    layout = torch.contiguous_format if plain else torch.channels_last
    model = build(case).to(memory_format=layout)  # type: ignore[call-overload]
    x, y = torch.from_numpy(case.x).to(memory_format=layout), torch.from_numpy(case.y)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    if variant == "compile":
        model.compile()

    def run() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run
