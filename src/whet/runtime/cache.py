"""Where whet keeps what it would otherwise do again: compiled kernels, numbers of a machine.

What is compiled here is linked and run later, so nothing is read back that may be anything else:
the folder and the file must be this user's alone, and the content must be what was written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .. import errors

PARTIAL = "partial-"  # files that are still being written, or whose writer was killed
STALE = 3600.0  # seconds after which nobody is writing one any more


def kept(name: str, make: Callable[[], bytes]) -> bytes:
    """What `make` gives, made once and kept under this name.

    It is made again if the file is truncated, damaged, another one's content or another user's.
    """
    path = cache_folder() / name
    content = intact(path)
    if content is None:
        content = make()
        with contextlib.suppress(OSError):  # a full disk: it is made again next time
            put(path, seal(name, content) + content)
    return content


def intact(path: Path) -> bytes | None:
    """The content of a file that `kept` wrote, if nobody changed it."""
    try:
        with open(path, "rb") as file:
            if fault(os.fstat(file.fileno())):
                return None
            sealed = file.read()
    except OSError:
        return None
    length = hashlib.sha256().digest_size
    content = sealed[length:]
    return content if sealed[:length] == seal(path.name, content) else None


def seal(name: str, content: bytes) -> bytes:
    """A checksum of the name, too: a whole file in the place of another one does not pass."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def put(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, even if others write it or this is killed."""
    for old in path.parent.glob(f"{PARTIAL}*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE:
                old.unlink()
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=PARTIAL)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


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
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.access(folder, os.W_OK) and trusted(folder):
            return folder
    return private_folder()


def trusted(folder: Path) -> bool:
    """Whether there is such a folder that nobody else can write to; if others can, says so once."""
    try:
        found = fault(folder.stat())
    except OSError:
        return False
    if found:
        warn(folder, found)
    return not found


def fault(status: os.stat_result) -> str:
    """Why what is in this file or folder may be somebody else's; empty if it is not."""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users may write to it" if status.st_mode & 0o022 else ""


@functools.cache
def warn(folder: Path, found: str) -> None:
    errors.warn(
        f"whet does not use its cache {folder}: {found}. Kernels are compiled again in every "
        f"process. If it is yours, chmod go-w {folder}; or set XDG_CACHE_HOME to a folder of yours"
    )


def private_folder() -> Path:
    """For this process only, where there is no cache to write to."""
    return Path(_private().name)


@functools.cache
def _private() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="whet-")
