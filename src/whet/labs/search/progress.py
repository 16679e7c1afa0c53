"""A bar with the time that is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .analysis import Progress as Tell
from .analysis import silent

DAY = 24 * 3600.0  # of which the time left is estimated: a candidate may take minutes


@contextmanager
def bar(wanted: bool | None) -> Iterator[Tell]:
    """Shows each kind of work as a line of its own; on a terminal unless told otherwise."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield silent
        return
    columns = (
        TextColumn("{task.description:<26}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, speed_estimate_period=DAY) as lines:
        tasks: dict[str, int] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = lines.add_task(what, total=total)
            lines.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield tell
