"""Files that are there whole or not at all, whenever their writer is killed."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes, durable: bool = False) -> None:
    """Replace a file as a whole; if `durable`, a loss of power leaves one of the two as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(partial, path)
