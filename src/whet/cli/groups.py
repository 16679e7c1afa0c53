"""Options that several commands share, as one parameter of the command each.

A command decorated with `with_groups` takes a group, such as `training: Training`; on the command
line, the fields of the group are options like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from . import options
from .models import Invocation, memory, numbers


@dataclass(frozen=True)
class Training:
    """The loss, the optimizer and the mode."""

    loss: options.LossOpt = None
    optimizer: options.OptimizerOpt = None
    lr: options.LrOpt = None
    momentum: options.MomentumOpt = 0.0
    weight_decay: options.DecayOpt = 0.0
    clip_norm: options.ClipOpt = None
    train: options.TrainOpt = False
    weights: options.WeightsOpt = None

    def invocation(self, model: str, inputs: list[str]) -> Invocation:
        return Invocation(model, inputs, **vars(self))


@dataclass(frozen=True)
class Sizing:
    """The part of `Training` that decides how much memory a step needs."""

    loss: options.LossOpt = None
    optimizer: options.OptimizerOpt = None
    momentum: options.MomentumOpt = 0.0
    train: options.TrainOpt = False
    weights: options.WeightsOpt = None

    def invocation(self, model: str, inputs: list[str]) -> Invocation:
        return Invocation(model, inputs, **vars(self))


@dataclass(frozen=True)
class Compiling:
    """What to train, the memory that it must fit in, and the C to write."""

    update: options.UpdateOpt = None
    ram: options.RamOpt = None
    flash: options.FlashOpt = None
    portable: options.PortableOpt = False
    mapped: options.MappedOpt = False
    name: options.NameOpt = "net"

    def arguments(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Memory:
    """Ways to save memory, and the passes to leave out."""

    rematerialize: options.RematOpt = None
    frozen: options.FrozenOpt = None
    products: options.ProductsOpt = None
    moments: options.MomentsOpt = None
    sparse: options.SparseOpt = False
    without: options.WithoutOpt = None

    def arguments(self) -> dict[str, Any]:
        moments = self.moments.value if self.moments else None
        own = {"sparse": self.sparse, "without": self.without or (), "moments": moments}
        return {**memory(self.rematerialize, self.frozen, self.products), **own}


@dataclass(frozen=True)
class Numbers:
    """The number format of the network."""

    dtype: options.DTypeOpt = options.DTypeName.float32
    calibrate: options.CalibrateOpt = None
    int8: options.Int8Opt = None

    def arguments(self, inputs: list[str]) -> dict[str, Any]:
        return numbers(self.dtype, self.calibrate, self.int8, inputs)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each group as parameters of their own, for Typer to read."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            kinds = get_type_hints(hints[name], include_extras=True)
            found = [
                (field.name, field.default, kinds[field.name]) for field in fields(hints[name])
            ]
        else:
            found = [(name, parameter.default, hints[name])]
        parameters += [
            inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for n, default, kind in found
        ]

    def expanded(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    expanded.__doc__ = command.__doc__
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    return expanded
