"""Where whet keeps what it would otherwise do again: compiled kernels, numbers of a machine."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Where compiled kernels are kept between runs; a private temporary folder if need be."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "whet"
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
