"""Read a torch optimizer: the update rule and the state of each parameter."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import FrontendError
from ...ops.optimizers import NAMES, OPTIMIZERS, Optimizer
from ...training import Training, UpdateRule
from ..model import Order
from .tensor import numpy_of

REFUSED = {"maximize": "maximising", "differentiable": "a differentiable optimizer"}


def nothing_to_train() -> FrontendError:
    return FrontendError(
        "there is nothing to train",
        why="no parameter of the model that requires a gradient is in the optimizer",
        try_="build the optimizer from model.parameters(), or set requires_grad",
    )


def trainable(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> set[int]:
    """Ids of the parameters that PyTorch would train."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {id(p) for p in model.parameters() if p.requires_grad and id(p) in held}


def training_of(
    optimizer: torch.optim.Optimizer,
    names: dict[int, str],
    orders: dict[str, Order],
    clip_norm: float | None,
) -> tuple[Training, float]:
    """Rules by parameter name, and the default learning rate of a step.

    `names` maps id(parameter) to its name. The ratio of a group's rate to the first nonzero rate is
    kept, whatever rate is passed at run time. Parameters that are not in the optimizer get the rule
    of its first group, in case a scheme trains them.
    """
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    base = next((rate for rate in rates if rate), 0.0)
    first, attrs = _rule(optimizer, optimizer.param_groups[0])
    usual = UpdateRule(first, {**attrs, "lr_scale": rates[0] / base if base else 1.0})
    rules = {name: usual for name in names.values() if name in orders}
    for group in optimizer.param_groups:
        record, attrs = _rule(optimizer, group)
        scale = float(group["lr"]) / base if base else 1.0
        for param in group["params"]:
            name = names.get(id(param))
            if name is None:
                raise FrontendError(
                    f"the optimizer has a parameter of shape {tuple(param.shape)} that does not "
                    "belong to the model",
                    try_="build it from model.parameters(); parameters of a loss are not trained",
                )
            if name not in orders:  # empty parameters are not imported
                continue
            state = optimizer.state.get(param, {})
            moments, step = _moments(record, state, orders[name]), float(state.get("step", 0.0))
            rules[name] = UpdateRule(record, {**attrs, "lr_scale": scale}, moments, step)
    return Training(rules, clip_norm), base


def _rule(
    optimizer: torch.optim.Optimizer, group: dict[str, Any]
) -> tuple[Optimizer, dict[str, Any]]:
    """The record that is for a group of parameters, and its attributes."""
    kind = type(optimizer)
    for record in OPTIMIZERS:
        if not any(kind is getattr(torch.optim, named.torch) for named in record.names):
            continue
        for key, word in (REFUSED | dict(record.refused)).items():
            if group.get(key):
                raise FrontendError(
                    f"{kind.__name__}: {word} is not supported", at=f"{key}={group[key]}"
                )
        if group.get("moments") and not record.narrows:
            what = f"{kind.__name__} has no moments in {group['moments']}"
            raise FrontendError(what, try_="Adam or AdamW of torch.optim")
        if (attrs := record.read(group)) is not None:
            return record, {"weight_decay": float(group["weight_decay"]), **attrs}
    *others, last = (named.torch for named in NAMES.values())
    raise FrontendError(
        f"the optimizer {kind.__name__} is not supported",
        try_=f"{', '.join(others)} or {last} of torch.optim",
    )


def _moments(record: Optimizer, state: dict[str, Any], order: Order) -> dict[str, Any]:
    pairs = ((m.name, state.get(m.torch)) for m in record.update.moments)
    found = {name: numpy_of(array) for name, array in pairs if array is not None}
    return {name: a.transpose(order) if order else a for name, a in found.items()}
