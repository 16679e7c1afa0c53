"""Write a program to a file from which it can be loaded without PyTorch: see saved.py.

The file is a zip of `program.json` and of arrays as .npy files. Plans are not in it: they follow
from the graphs.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BuildError
from ..ir.records import Writer
from ..writing import replacing

if TYPE_CHECKING:
    from .program import Program

FORMAT = 1
CONTENT = "program.json"
LEFT_OUT = ("options", "plans", "source", "measured")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes


def save(program: Program, path: str | Path) -> Path:
    writer = Writer()
    target = program.target
    own = [f.name for f in dataclasses.fields(program) if f.name not in LEFT_OUT]
    options = [f.name for f in dataclasses.fields(program.options) if f.name != "target"]
    content = {
        "format": FORMAT,
        "target": [target.name, target == target.portable(), target.ram, target.flash],
        "options": {name: writer.plain(getattr(program.options, name)) for name in options},
        "program": {name: writer.plain(getattr(program, name)) for name in own},
    }
    try:
        with replacing(path) as whole, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
            add(file, CONTENT, json.dumps(content, separators=(",", ":")).encode())
            for number, array in enumerate(writer.arrays):
                add(file, array_file(number), npy(array))
    except OSError as error:
        raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error
    return Path(path)


def add(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(info, content)


def array_file(number: int) -> str:
    return f"arrays/{number}.npy"


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array) if array.ndim else array, allow_pickle=False)
    return buffer.getvalue()
