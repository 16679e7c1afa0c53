"""Load a program that was saved, without PyTorch and without the model it was compiled from."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .emit.program import Program
from .emit.saving import CONTENT, FORMAT, array_file
from .emit.tensor_info import TensorInfo
from .errors import BuildError, WhetError
from .ir import Array, Codebook, Factors, Live, WeightSlice
from .ir.quant import Fold, Quant
from .ir.records import Reader
from .passes import Recompute, check_switches
from .passes.machine import Machine
from .pipeline import Options, place
from .scheme import Rule, Scheme
from .settings import check_name, target_of
from .training import IntegerRules, Send, Unit

CLASSES = (
    Codebook, Factors, Fold, IntegerRules, Live, Machine, Quant, Recompute, Rule, Scheme, Send,
    TensorInfo, Unit, WeightSlice,
)  # fmt: skip
BROKEN = (
    zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, TypeError, KeyError, IndexError,
    AttributeError, EOFError, OverflowError,
)  # fmt: skip


class Arrays(dict[int, Array]):
    """The arrays of a file by number, each read when it is first asked for."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self.file = file

    def __missing__(self, number: int) -> Array:
        content = io.BytesIO(self.file.read(array_file(number)))
        self[number] = np.load(content, allow_pickle=False)
        return self[number]


def load(path: str | Path) -> Program:
    """The program that `Program.save` wrote to this file.

    It trains and predicts as before. It cannot be checked against PyTorch.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return read(file)
    except OSError as error:
        raise BuildError(f"cannot read {path}", why=str(error.strerror or error)) from error
    except WhetError as error:
        raise refused(path, error.what) from error
    except BROKEN as error:
        raise refused(path, f"{type(error).__name__}: {error}") from error


def read(file: zipfile.ZipFile) -> Program:
    content = json.loads(file.read(CONTENT))
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']}, this version reads {FORMAT}")
    reader = Reader(CLASSES, Arrays(file))
    options = options_of(reader, content)
    own = {name: reader.read(value) for name, value in content["program"].items()}
    return Program(options=options, plans=place(own["entries"], options), **own)


def options_of(reader: Reader, content: dict[str, Any]) -> Options:
    """The compiler's flags are those of the target: the file only names it."""
    name, portable, ram, flash = content["target"]
    given = {name: reader.read(value) for name, value in content["options"].items()}
    check_name(given["name"])
    check_switches(given["without"])
    return Options(target=target_of(name, portable, ram, flash), **given)


def refused(path: str | Path, why: str) -> BuildError:
    return BuildError(
        f"{path} is not a saved program, or a damaged one",
        why=why,
        try_="program.save(...) of this version of whet",
    )
