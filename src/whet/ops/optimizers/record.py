"""The record of an optimizer: its operators, and what a framework calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...ir import Op
from ..fused_update import FusedUpdate
from ..live_update import LiveUpdate
from ..settle import StepOp
from ..take_update import TakeUpdate
from ..update import Moment, UpdateOp

Options = Mapping[str, Any]  # of a parameter group, by the framework's names


@dataclass(frozen=True)
class Named:
    """A name that `optimizer=` and the command line take, and the class of torch.optim it means."""

    name: str
    torch: str
    momentum: bool = False  # whether it has an option of that name


@dataclass(frozen=True)
class Optimizer:
    """One optimizer: adding one is writing this record and the operators in it.

    The kernels are those that the operators call, one C file of each operator's name.
    """

    update: type[UpdateOp]  # the rule for floats; says which state there is
    step: type[StepOp]  # the same for integers: how far to move
    fused: type[FusedUpdate]  # `update` with the gradient made and spent in blocks
    live: type[LiveUpdate]  # the same for live weights
    names: tuple[Named, ...]
    # Attributes of `update` from the options of a group; None if another record is for these.
    # Weight decay and the learning rate are read for all optimizers alike.
    read: Callable[[Options], dict[str, Any] | None]
    refused: Mapping[str, str] = field(default_factory=dict)  # options that must be off, in words
    fused_step: type[Op] | None = None  # `step`, then rounding, with the gradient in blocks
    take: type[TakeUpdate] | None = None  # `update` of an embedding, with the gradient in blocks

    @property
    def counts(self) -> bool:
        """Whether it needs the number of the step."""
        return self.update.counts

    @property
    def narrows(self) -> bool:
        """Whether its moments may be in bf16."""
        return "narrow" in {f.name for f in fields(self.update.Attrs)}

    def moments(self, attrs: Mapping[str, Any]) -> tuple[Moment, ...]:
        """The state that it keeps with these attributes of `update`, in the order of operands."""
        made = self.update.Attrs(**attrs)
        return tuple(moment for moment in self.update.moments if moment.exists(made))
