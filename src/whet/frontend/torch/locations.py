"""Locations in the user's own code, from PyTorch's traces."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

import torch

OTHERS = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
PYTHON = sysconfig.get_path("stdlib") + os.sep
FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in ', re.MULTILINE)


def is_own(path: str) -> bool:
    """Whether a file is the user's, not PyTorch's, Python's, or whet's own."""
    of_python = path.startswith(PYTHON) and "-packages" not in path.removeprefix(PYTHON)
    return not of_python and not path.startswith((*OTHERS, "<frozen", "<eval_with", "<string>"))


def source_of(stack_trace: str | None) -> str:
    """The innermost user frame of a node's trace, as `file.py:12`; empty if there is none."""
    own = [(path, line) for path, line in FRAME.findall(stack_trace or "") if is_own(path)]
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""


def location_of(error: BaseException) -> str:
    """The innermost user frame of an error's traceback, with its line of source."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_own(f.filename)]
    if not frames:
        return ""
    frame = frames[-1]
    path = os.path.relpath(frame.filename)
    path = frame.filename if path.startswith(os.pardir) else path
    return f"{path}:{frame.lineno}  {frame.line}".rstrip()
