"""How far long work has come: a callback, and the progress bar that is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]  # what, how many are done, of how many


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def bar(wanted: bool | Progress | None) -> Iterator[Progress]:
    """A progress bar for each kind of work; on a terminal unless told otherwise.

    A callback is itself what shows: work inside other work shares its bars.
    """
    if callable(wanted):
        yield wanted
        return
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield silent
        return
    from rich import progress
    from rich.console import Console

    columns = ("{task.description:<26}", progress.BarColumn(), progress.MofNCompleteColumn(),
               progress.TimeElapsedColumn(), "left", progress.TimeRemainingColumn())  # fmt: skip
    day = 24 * 3600.0  # the period to estimate the speed by: a trial may take minutes
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, speed_estimate_period=day) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show
