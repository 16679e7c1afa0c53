"""What the commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
waiting = Console(stderr=True)  # for progress


def say(text: str = "") -> None:
    out.print(text, markup=False)


def note(text: str) -> None:
    """What is no result, or would be one if standard output were not for JSON."""
    err.print(text, markup=False)


@contextmanager
def resumable(folder: Path, command: str = "the same command") -> Iterator[None]:
    """Say where the work continues if Ctrl-C stops it."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped; {command} resumes from {folder}")
        raise typer.Exit(130) from None


def say_json(data: Any) -> None:
    out.print_json(json.dumps(finite(data), allow_nan=False))


def finite(data: Any) -> Any:
    """The same with null for NaN and infinity, which JSON does not have."""
    if isinstance(data, Mapping):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
