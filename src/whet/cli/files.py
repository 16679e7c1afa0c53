"""Files that a command reads, and places that it will write to, looked at before the work."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BuildError, DataError, FrontendError, WhetError

if TYPE_CHECKING:
    from ..ir import Array

MAGIC = b"\x93NUMPY"
SAVE = "np.savez(path, x=inputs, y=labels)"


def check_folder(path: Path, what: str) -> None:
    """Refuse a folder that cannot be made or written to."""
    there = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not there.is_dir():
        why = f"{there} is a file"
    elif not os.access(there, os.W_OK | os.X_OK):
        why = f"{there} cannot be written to"
    else:
        return
    raise BuildError(f"cannot write {what} to {path}", why=why, try_="another folder")


def check_file(path: Path, suffix: str = "") -> None:
    """Refuse a file that cannot be written; its folder has to be there."""
    folder = path.absolute().parent
    if suffix and path.suffix != suffix:
        raise BuildError(f"{path} is not a {suffix} file", try_=str(path.with_suffix(suffix)))
    if path.is_dir():
        why = "it is a folder"
    elif not folder.is_dir():
        why = f"there is no folder {folder}"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        why = f"{path if path.exists() else folder} cannot be written to"
    else:
        return
    raise BuildError(f"cannot write {path}", why=why)


def read_array(path: Path) -> Array:
    """Inputs to calibrate with, of a .npy file."""
    import numpy as np

    start = opening(path, FrontendError, "a .npy file, by numpy.save(path, inputs)")
    if start != MAGIC:
        raise FrontendError(
            f"cannot read {path}",
            why="it is an archive, as .npz is" if start[:2] == b"PK" else "it is not a .npy file",
            try_="numpy.save(path, inputs)",
        )
    try:
        array: Any = np.load(path, allow_pickle=False)
    except Exception as error:
        raise FrontendError(f"cannot read {path}", why=damage(error)) from error
    if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
        raise FrontendError(
            f"{path} is not an array of float inputs",
            why=f"it is {array.dtype} of shape {array.shape}",
            try_="numpy.save(path, inputs): floats, one input after the other",
        )
    found: Array = array
    return found


def read_archive(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file, by name."""
    import numpy as np

    opening(path, DataError, SAVE)
    if not zipfile.is_zipfile(path):
        raise DataError(f"cannot read {path}", why="it is not an .npz file", try_=SAVE)
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except Exception as error:
        raise DataError(f"cannot read {path}", why=damage(error), try_=SAVE) from error
    for name, array in found.items():
        if not hasattr(array, "dtype") or array.dtype.kind not in "fiub":
            kind = getattr(array, "dtype", "no array")
            raise DataError(f"{name} of {path} holds no numbers", why=f"it is {kind}", try_=SAVE)
    return found


def opening(path: Path, kind: type[WhetError], hint: str) -> bytes:
    """The first bytes of a file that is there and not empty."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise kind(f"cannot read {path}", why=str(error.strerror), try_=hint) from error
    if not start:
        raise kind(f"cannot read {path}", why="it is empty", try_=hint)
    return start


def damage(error: Exception) -> str:
    if "allow_pickle" in str(error):
        return "it holds Python objects, not numbers"
    return f"it is damaged or cut off ({type(error).__name__}: {error})"
