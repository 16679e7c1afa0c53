"""Files that are there whole or not at all, also if writing them is interrupted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str], durable: bool = False) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at the end, unless an exception ends this.

    If `durable`, a loss of power leaves one of the two whole as well.
    """
    whole = Path(os.path.realpath(path))
    if whole.exists() and not whole.is_file():  # a device or a pipe; opening a folder fails
        with whole.open("wb") as file:
            yield file
        return
    partial = whole.with_name(f".{whole.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if whole.exists():
            shutil.copymode(whole, partial)
        os.replace(partial, whole)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: str | bytes, durable: bool = False) -> None:
    with replacing(path, durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)
