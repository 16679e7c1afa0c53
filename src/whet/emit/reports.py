"""Write what is known of a program to files: a page, and a trace of its training step."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BuildError, DataError
from ..report.energy import Factors
from ..report.page import Extras, html_page
from ..report.trace import chrome_trace
from ..scheme import Scheme
from ..writing import write_whole

if TYPE_CHECKING:
    from .program import Program


def write_page(
    program: Program,
    path: str | Path,
    *,
    title: str = "",
    against: Program | str | Scheme | None = None,
    budget: int | None = None,
    without: Collection[str] = (),
    history: Any = None,
    energy: Factors | None = None,
) -> Path:
    """See `Program.report`."""
    by_scheme = against is not None and isinstance(against, (str, Scheme))
    other: Any = program.require_source().by_scheme(program, against) if by_scheme else against
    others = program.require_source().without(program, without) if without else {}
    arenas = {name: found.memory["arena"] for name, found in others.items()}
    curves = dict(getattr(history, "history", history) or {})
    page = html_page(program, Extras(title, other, budget, arenas, curves, energy))
    return written(path, page)


def write_trace(program: Program, path: str | Path, steps: int) -> Path:
    """See `Program.trace`."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise DataError(f"steps={steps!r} is not a number of steps", try_="steps=5")
    timeline = program.target.timeline(program, steps)
    found = chrome_trace(program.plans["train_step"], timeline, program.name)
    return written(path, json.dumps(found, separators=(",", ":")))


def written(path: str | Path, text: str) -> Path:
    try:
        write_whole(path, text)
    except OSError as error:
        raise BuildError(f"cannot write {path}", why=str(error.strerror)) from error
    return Path(path)
