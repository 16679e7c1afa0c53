"""What the integers of an int8 parameter stand for, as PyTorch has its axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..ir import Array

if TYPE_CHECKING:
    from ..emit.program import Program
    from ..training.steps import Unit


def along(program: Program, name: str, numbers: Array) -> Array:
    """One number per channel of an integer parameter, shaped to multiply it in PyTorch."""
    unit, info = program.integer_rules.units[name], program.tensors[name]
    shape = [1] * info.type.rank
    shape[info.order[unit.axis]] = -1
    return np.asarray(numbers, np.float64).reshape(shape)


def step_sizes(program: Program, name: str) -> Array:
    """What a step of 1 of an integer parameter stands for."""
    unit = program.integer_rules.units[name]
    return along(
        program, name, trained(unit, program.entries["train_step"].data[unit.scale]) * unit.unit
    )


def fold_scale(program: Program, name: str) -> Array:
    """What an integer parameter was multiplied by when a batch norm became part of it."""
    part = program.parts.get(name)
    if (fold := program.folds.get(part.parameter if part else name)) is None:
        return np.ones(1)
    scale = np.where(fold.scale == 0, 1.0, fold.scale)  # a norm of 0 tells nothing
    return along(program, name, trained(program.integer_rules.units[name], scale))


def trained(unit: Unit, numbers: Array) -> Array:
    """Those of the channels that train."""
    return numbers if unit.channels is None else numbers[list(unit.channels)]
