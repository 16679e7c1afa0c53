"""Shoulder exercises of ten people, recorded by a watch on the wrist.

The recordings come with the package seglearn (BSD): six axes at 50 Hz, of ten people who did seven
exercises about twenty times with each arm (Burns et al., arXiv:1802.01489). The package only
provides the file: it is never imported.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

PACKAGE = "seglearn"
FILE = "seglearn/data/watch_dataset.npy"
WINDOW = 128  # samples: 2.56 seconds, a repetition or two
OTHERS = 5  # people in the pretraining data

Array = np.ndarray[Any, Any]
Labelled = tuple[Tensor, Tensor]  # windows [n, WINDOW, 6] and their exercises


@dataclass(frozen=True)
class Recording:
    """One person doing one exercise with one arm: [time, 6]."""

    person: int
    exercise: int
    signal: Array


class StoredType:
    """A placeholder for an array's type while a pickle is read."""

    def __init__(self, name: str, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.name = f"{state[1]}{self.name}"  # preceded by the byte order


class StoredArray:
    """A placeholder for an array while a pickle is read."""

    def __init__(self, *_: object) -> None:
        self.content: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        if isinstance(content, bytes):  # numbers; else a list of objects
            flat = np.frombuffer(content, kind.name)
            content = flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
        self.content = content


def encoded(text: str, _: str) -> bytes:
    """Bytes, which old pickles store as text."""
    return text.encode("latin1")


class Reader(pickle.Unpickler):
    """Reads arrays of numbers and executes nothing: a pickle may call only these four."""

    KNOWN: dict[tuple[str, str], Any] = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): StoredArray,
        ("numpy", "ndarray"): StoredArray,
        ("numpy", "dtype"): StoredType,
        ("_codecs", "encode"): encoded,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.KNOWN:
            raise SystemExit(
                f"The recordings try to call {module}.{name}: this is not the expected file."
            )
        return self.KNOWN[module, name]


def read(file: BinaryIO) -> dict[str, Any]:
    """The only object, a dict, in an .npy file of objects."""
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    (content,) = Reader(file).load().content
    return {k: v.content if isinstance(v, StoredArray) else v for k, v in content.items()}


def load() -> tuple[list[Recording], Sequence[str]]:
    """All recordings, and the names of the exercises."""
    try:
        path = Path(str(metadata.distribution(PACKAGE).locate_file(FILE)))
    except metadata.PackageNotFoundError:
        raise SystemExit(f"The recordings are missing: pip install --no-deps {PACKAGE}") from None
    with path.open("rb") as file:
        data = read(file)
    rows = zip(data["subject"], data["y"], data["X"], strict=True)
    found = [Recording(int(person), int(y), x.content) for person, y, x in rows]
    return found, data["y_labels"]


def windows(
    recordings: Iterable[Recording], stride: int, start: float = 0.0, stop: float = 1.0
) -> Labelled:
    """Windows between two points of each recording, given as fractions of its length."""
    cut, labels = [], []
    for r in recordings:
        first, last = int(start * len(r.signal)), int(stop * len(r.signal)) - WINDOW
        pieces = [r.signal[i : i + WINDOW] for i in range(first, last + 1, stride)]
        cut += pieces
        labels += [r.exercise] * len(pieces)
    return torch.from_numpy(np.stack(cut).astype(np.float32)), torch.tensor(labels)


@dataclass(frozen=True)
class Split:
    """The recordings of the others, and the wearer's, first those to train on, then those to test
    on.

    The wearer's recordings are split in the middle and no window crosses the split, so that
    training and test data do not overlap. Both halves are from one session: the data has no later
    day.
    """

    others: Labelled
    learn: Labelled
    judge: Labelled


def company(people: Iterable[int], wearer: int) -> list[int]:
    """The OTHERS people after the wearer by number, wrapping around."""
    order = sorted(set(people))
    at = order.index(wearer)
    return [*order[at + 1 :], *order[:at]][:OTHERS]


def split(recordings: Sequence[Recording], wearer: int) -> Split:
    """Windows by person, all normalised by the statistics of the others."""
    known_people = company((r.person for r in recordings), wearer)
    others = [r for r in recordings if r.person in known_people]
    own = [r for r in recordings if r.person == wearer]
    known = np.concatenate([r.signal for r in others])
    mean, deviation = (torch.from_numpy(v).float() for v in (known.mean(0), known.std(0)))

    def scaled(part: Labelled) -> Labelled:
        return (part[0] - mean) / deviation, part[1]

    return Split(
        others=scaled(windows(others, WINDOW // 4)),
        learn=scaled(windows(own, WINDOW // 4, stop=0.5)),
        judge=scaled(windows(own, WINDOW // 2, start=0.5)),
    )
