"""What travels between devices that learn together: the numbers that train, by PyTorch's names.

A float parameter travels as it is. An integer parameter travels as the real numbers it stands for,
together with the fraction of a step that its carry or master holds: the average of many devices is
seldom a whole number of steps. Of a parameter that trains in part, only the channels that train are
read and written. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..errors import DataError
from ..ir import Array, Relation
from ..ops.settle import LIMITS
from .arrays import from_stored, to_numpy
from .trainer import Trainer


def trained(trainer: Trainer) -> dict[str, Array]:
    """What trains, as float32 in PyTorch's axis order; parts of parameters that train in part.

    Integers are given as the floats that they stand for, as by `Trainer.state_dict`.
    """
    masters, carries = trainer._beside(Relation.MASTER), trainer._beside(Relation.CARRY)
    found = {}
    for name, parameter in names(trainer).items():
        numbers = trainer._view(name)
        if name in trainer.program.integer_rules.units:
            steps = numbers.astype(np.float64)
            if name in masters:
                steps = trainer._view(masters[name]).astype(np.float64)
            elif name in carries:
                carry = trainer._view(carries[name])
                steps -= carry / units(carry)
            numbers = Affine(trainer, name).real(from_stored(steps, trainer.program.tensors[name]))
        else:
            numbers = from_stored(numbers, trainer.program.tensors[name])
        found[parameter] = numbers.astype(np.float32)
    return found


def set_trained(trainer: Trainer, arrays: Mapping[str, Any]) -> None:
    """Write what `trained` gave, or an average of that; DataError, with nothing changed, if names,
    shapes or numbers do not fit.

    A carry or master takes the fraction of a step; without one, integers are rounded to the
    nearest. Numbers outside an integer's range become the nearest end of it.
    """
    known = names(trainer)
    checked = accepted(arrays, {known[n]: trainer.program.tensors[n].shape for n in known})
    masters, carries = trainer._beside(Relation.MASTER), trainer._beside(Relation.CARRY)
    for name, parameter in known.items():
        array, info = checked[parameter], trainer.program.tensors[name]
        view, part = trainer._view(name), trainer.program.parts.get(name)
        if name not in trainer.program.integer_rules.units:
            array = array.transpose(info.order)
            view[:] = (array if part is None else part.held(array)).ravel()
            continue
        low, high = LIMITS[view.dtype.itemsize]
        steps = Affine(trainer, name).steps(array).transpose(info.order)
        steps = (steps if part is None else part.held(steps)).ravel()
        if name in carries:
            carry = trainer._view(carries[name])
            view[:], carry[:] = with_carry(steps, units(carry), low, high)
            continue
        steps = np.clip(steps, low, high).astype(np.float32)
        view[:] = np.rint(steps)
        if name in masters:
            trainer._view(masters[name])[:] = steps
    trainer._written()


def statistics(trainer: Trainer) -> dict[str, Array]:
    """Running statistics of batch norm in training mode: they travel only if asked for."""
    return {name: trainer._get(name) for name in statistic_names(trainer)}


def set_statistics(trainer: Trainer, arrays: Mapping[str, Any]) -> None:
    """Write what `statistics` gave; DataError, with nothing changed, if it does not fit."""
    tensors = trainer.program.tensors
    shapes = {name: tensors[name].shape for name in statistic_names(trainer)}
    for name, array in accepted(arrays, shapes).items():
        trainer._view(name)[:] = array.transpose(tensors[name].order).ravel()
    trainer._written()


def names(trainer: Trainer) -> dict[str, str]:
    """Trained leaves of the program, and the PyTorch parameter that each is, or is a part of."""
    parts = trainer.program.parts
    return {n: parts[n].parameter if n in parts else n for n in trainer.program.storage.params}


def statistic_names(trainer: Trainer) -> list[str]:
    program = trainer.program
    return [n for n in program.storage.state if n in program.tensors and n != program.rng]


def accepted(arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Exactly these arrays, as float32; DataError if any is missing, unknown or unfit."""
    if absent := shapes.keys() - arrays.keys():
        raise DataError(f"there is no array for {listed(absent)}", why=expected(shapes))
    if unknown := arrays.keys() - shapes.keys():
        raise DataError(f"nothing of the program is called {listed(unknown)}", why=expected(shapes))
    found = {}
    for name, shape in shapes.items():
        array = to_numpy(arrays[name])
        if array.dtype.kind != "f":
            raise DataError(f"{name} has dtype {array.dtype}", why="numbers travel as floats")
        if tuple(array.shape) != shape:
            raise DataError(f"{name} has shape {tuple(array.shape)}, the program has {shape}")
        with np.errstate(over="ignore"):
            found[name] = array.astype(np.float32)
        if not np.isfinite(found[name]).all():
            raise DataError(f"{name} holds numbers that are not finite in float32")
    return found


def listed(found: Collection[str]) -> str:
    first, *others = sorted(found)
    return first if not others else f"{first} and {len(others)} others"


def expected(shapes: Mapping[str, Any]) -> str:
    return f"the program has {', '.join(shapes) or 'none'}"


class Affine:
    """Between the steps of an integer parameter and the real numbers of PyTorch's parameter.

    steps * size = real * scale + shift, by channel: a batch norm may have become part of it.
    """

    def __init__(self, trainer: Trainer, name: str) -> None:
        self.size = trainer._step_sizes(name)
        fold = trainer.program.folds.get(names(trainer)[name])
        if fold is None:
            self.scale: Any = 1.0
            self.shift: Any = 0.0
            return
        channels = trainer.program.integer_rules.units[name].channels
        pick: Any = slice(None) if channels is None else list(channels)
        # A norm that multiplies by 0 hides the number; with 1 in its place nothing is lost here.
        self.scale = trainer._along(name, np.where(fold.scale == 0, 1.0, fold.scale)[pick])
        self.shift = trainer._along(name, np.asarray(fold.shift)[pick])

    def real(self, steps: Array) -> Array:
        return (steps * self.size - self.shift) / self.scale

    def steps(self, real: Array) -> Array:
        return (real.astype(np.float64) * self.scale + self.shift) / self.size


def units(carry: Array) -> int:
    """How many units of a carry make a step of 1."""
    return 1 << 8 * carry.dtype.itemsize


def with_carry(steps: Array, unit: int, low: int, high: int) -> tuple[Array, Array]:
    """Integers q and carries c with steps = q - c / unit, to half a unit: see ops/settle.py."""
    half = unit // 2
    whole = np.clip(np.rint(steps * unit), low * unit - half + 1, high * unit + half)
    q = np.floor((whole + half - 1) / unit)
    return q, q * unit - whole
