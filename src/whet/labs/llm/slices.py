"""What a program has learnt, and nothing else, in a file that goes back into the model.

The file is an .npz of float32: the numbers of each trained parameter by its name. Where some of a
parameter trains, "name:axis" and "name:places" say which numbers of it these are.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ...errors import CheckpointError
from ...runtime import trained
from ...writing import replacing

if TYPE_CHECKING:
    from ...runtime import Trainer

Array = npt.NDArray[Any]

AXIS, PLACES = ":axis", ":places"
BROKEN = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)


def save_trained(trainer: Trainer, path: str | os.PathLike[str]) -> Path:
    """Write the numbers that train, without the optimizer's state. The name should end in .npz."""
    program = trainer.program
    arrays: dict[str, Array] = {}
    for name, numbers in trained(trainer).items():
        arrays[name] = numbers
        where = program.trained[name]
        if program.factors or (where is None and numbers.shape != program.tensors[name].shape):
            raise CheckpointError(
                "factors of LoRA and shared values are no numbers of the model",
                try_="trainer.state_dict(merge=True)",
            )
        if where is not None:
            axis, places = where
            arrays[name + PLACES] = np.array(places, np.int32)
            arrays[name + AXIS] = np.array(-1 if axis is None else axis, np.int32)
    try:
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}", why=str(error.strerror)) from error
    return Path(path)


def load_trained(model: nn.Module, path: str | os.PathLike[str]) -> list[str]:
    """Put the numbers of such a file into the model's parameters; the names of these.

    CheckpointError, with nothing changed, if they do not fit.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except BROKEN as error:
        raise CheckpointError(f"cannot read {path}", why=str(error)) from error
    parameters = dict(model.named_parameters())
    changed = {}
    for name, numbers in arrays.items():
        if name.endswith((AXIS, PLACES)):
            continue
        if name not in parameters:
            raise CheckpointError(f"{path} does not fit the model", why=f"it has no {name}")
        whole = parameters[name].detach().float().numpy().copy()
        try:
            put(whole, numbers, arrays.get(name + AXIS), arrays.get(name + PLACES))
        except (ValueError, IndexError, TypeError) as error:
            raise CheckpointError(f"{path} does not fit {name}", why=str(error)) from error
        changed[name] = whole
    with torch.no_grad():
        for name, whole in changed.items():
            parameters[name].copy_(torch.from_numpy(whole))
    return list(changed)


def put(whole: Array, numbers: Array, axis: Array | None, places: Array | None) -> None:
    """Write numbers to their places in a parameter."""
    if axis is None or places is None:
        target = whole.shape
    elif int(axis) < 0:
        whole, target = whole.reshape(-1), places.shape
    else:
        whole = np.moveaxis(whole, int(axis), 0)
        numbers = np.moveaxis(numbers, int(axis), 0)
        target = (len(places), *whole.shape[1:])
    if numbers.shape != target or numbers.dtype.kind != "f":
        raise ValueError(f"there are {numbers.dtype}{list(numbers.shape)} for {list(target)}")
    whole[... if places is None else places] = numbers
