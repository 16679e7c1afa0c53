"""States of a model in a folder, so that interrupted work resumes where it was.

A state is an .npz file of plain arrays: the numbers of the model, those of PyTorch's random
generator, and notes as JSON. It is there whole or not at all, and nothing of it is unpickled.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...errors import BuildError, CheckpointError
from ...writing import replacing, write_whole
from .weights import Array, flat

NOTES, RANDOM = "__notes__", "__random__"
Notes = dict[str, Any]


def arrays_of(model: nn.Module) -> dict[str, Array]:
    """Numbers by name; those of bfloat16 as float32, which is exact."""
    return {
        name: (flat(t).reshape(t.shape) if t.is_floating_point() else t.detach().cpu().numpy())
        for name, t in model.state_dict().items()
    }


def set_arrays(model: nn.Module, arrays: Mapping[str, Array], where: str = "") -> None:
    """The reverse of `arrays_of`; changes nothing if a name or a shape differs."""
    own = model.state_dict()
    wrong = sorted(own.keys() ^ arrays.keys())
    wrong += [n for n, t in own.items() if n in arrays and t.shape != arrays[n].shape]
    if wrong:
        raise CheckpointError(f"{where or 'the state'} is of another model", at=tuple(wrong[:5]))
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def checksum(model: nn.Module) -> int:
    crc = 0
    for name, array in arrays_of(model).items():
        crc = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), crc)
        crc = zlib.crc32(np.ascontiguousarray(array).tobytes(), crc)
    return crc


class Store:
    """A folder of states by name, all of one run; without a folder it keeps nothing."""

    def __init__(self, folder: str | Path | None, run: Mapping[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        self.run = json.loads(json.dumps(run))
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BuildError(
                    f"cannot write states to {folder}", why=str(error.strerror)
                ) from error

    def load(self, name: str, model: nn.Module) -> Notes | None:
        """The notes of a state, after its numbers were put into the model; None if it is not there.

        PyTorch's random generator goes on from where it was.
        """
        if self.folder is None or not (path := self.folder / f"{name}.npz").exists():
            return None
        arrays, notes = read(path)
        random = arrays.pop(RANDOM, None)
        if notes.pop("run") != self.run:
            raise CheckpointError(
                f"{path} is of another run",
                why="the model or an option was different",
                try_="another folder, or remove this one",
            )
        set_arrays(model, arrays, str(path))
        if random is not None:
            torch.set_rng_state(torch.from_numpy(random))
        return notes

    def save(self, name: str, model: nn.Module, notes: Notes) -> None:
        if self.folder is None:
            return
        words = json.dumps({"run": self.run, **notes}).encode()
        extra = {NOTES: np.frombuffer(words, np.uint8), RANDOM: torch.get_rng_state().numpy()}
        write(self.folder / f"{name}.npz", {**arrays_of(model), **extra})


def read(path: Path) -> tuple[dict[str, Array], Notes]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        notes = json.loads(arrays.pop(NOTES).tobytes())
        if not isinstance(notes, dict) or "run" not in notes:
            raise ValueError("its notes are not those of a state")
    except Exception as error:
        raise CheckpointError(
            f"cannot read {path}",
            why=f"it is damaged or no state ({type(error).__name__}: {error})",
            try_="remove it: that part is done again",
        ) from error
    return arrays, notes


def write(path: Path, arrays: Mapping[str, Array]) -> None:
    """An .npz file that is there whole or not at all."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())


class Results:
    """Numbers by name in one JSON file, for scans that resume; without a folder, in memory."""

    def __init__(self, path: Path | None, run: Mapping[str, Any]) -> None:
        self.path, self.run = path, json.loads(json.dumps(run))
        self.found: dict[str, Any] = {}
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error
        if path.exists():
            self.found = self.read(path)

    def read(self, path: Path) -> dict[str, Any]:
        try:
            words = json.loads(path.read_text())
            run, found = words["run"], words["results"]
            if not isinstance(found, dict):
                raise ValueError("there are no results in it")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"cannot read {path}", why=f"it is damaged ({error})", try_="remove it"
            ) from error
        if run != self.run:
            raise CheckpointError(
                f"{path} is of another run",
                why="the model or an option was different",
                try_="another folder, or remove this one",
            )
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def __getitem__(self, name: str) -> Any:
        return self.found[name]

    def put(self, name: str, value: Any) -> None:
        self.found[name] = value
        if self.path is not None:
            text = json.dumps({"run": self.run, "results": self.found}, indent=1)
            write_whole(self.path, text)
