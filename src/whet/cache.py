"""Where whet keeps what it would otherwise do again: compiled kernels, numbers of a machine."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path


def cache_path() -> Path | None:
    """Where the cache is, or would be; None if there is no place for one."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:  # no home
        return None
    return Path(base) / "whet"


def cache_folder() -> Path:
    """The cache, to write to; a private temporary folder if need be."""
    folder = cache_path()
    if folder is None:
        return private_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return private_folder()


@functools.cache
def private_folder() -> Path:
    """For this process only, where there is no cache to write to."""
    return Path(tempfile.mkdtemp(prefix="whet-"))
