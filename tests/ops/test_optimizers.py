"""Every record of an optimizer holds together, and names things of PyTorch that exist."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whet
from whet.frontend.torch.choices import OptimizerName, make_optimizer
from whet.frontend.torch.optim import training_of
from whet.ops.optimizers import NAMES, OPTIMIZERS, Optimizer

KERNELS = Path(whet.__file__).parent / "kernels" / "ref"
records = pytest.mark.parametrize("record", OPTIMIZERS, ids=lambda o: o.update.name)


@records
def test_the_operators_of_a_record_belong_together(record: Optimizer) -> None:
    rule = record.update
    assert record.step.update is record.fused.update is record.live.update is rule
    own = {f.name for f in fields(rule.Attrs)}
    assert {"lr_scale", "weight_decay"} <= own
    for op in (record.step, record.fused):
        assert own < {f.name for f in fields(op.Attrs)}
    assert {moment.when for moment in rule.moments} <= {"", *own}
    assert record.take is None or record.take.update is rule
    for op in filter(None, (rule, record.step, record.fused, record.live, record.take)):
        assert (KERNELS / f"{op.name}.c").exists(), op.name


def test_python_and_the_command_line_know_every_name() -> None:
    assert [name.value for name in OptimizerName] == list(NAMES)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", NAMES)
def test_options_and_state_are_read_by_their_names(name: str, momentum: float) -> None:
    layer = nn.Linear(3, 2)
    optimizer = make_optimizer(name, layer.parameters(), 0.1, momentum, weight_decay=0.25)
    assert type(optimizer) is getattr(torch.optim, NAMES[name].torch)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    names = {id(p): n for n, p in layer.named_parameters()}
    orders: dict[str, Any] = {"weight": (0, 1), "bias": (0,)}
    training, rate = training_of(optimizer, names, orders, None)
    assert rate == 0.1
    for key, rule in training.rules.items():
        assert rule.attrs["weight_decay"] == 0.25 and rule.attrs["lr_scale"] == 1.0
        assert rule.optimizer.update.Attrs(**rule.attrs)
        assert list(rule.state) == [moment.name for moment in rule.moments]
        parameter = dict(layer.named_parameters())[key]
        for moment in rule.moments:
            theirs = optimizer.state[parameter][moment.torch].numpy()
            assert rule.state[moment.name].tolist() == theirs.tolist()
        assert rule.step == (1 if rule.optimizer.counts else rule.step)
        assert ("momentum" in rule.state) == (bool(momentum) and NAMES[name].momentum)
