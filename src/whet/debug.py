"""Show what every pass does: `WHET_DEBUG=passes`, or `WHET_DEBUG=passes:FOLDER` for the graphs.

One line on standard error for each pass that changed a graph, with the number of nodes and the peak
of live bytes before and after. With a folder, the graph after every pass is written there as well.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from .errors import FrontendError
from .ir import Graph
from .memory.plan import lifetimes
from .passes import Observer


def observer(given: Observer | None) -> Observer | None:
    """The one given, or the one that WHET_DEBUG asks for."""
    word = os.environ.get("WHET_DEBUG", "")
    if given is not None or not word:
        return given
    kind, _, folder = word.partition(":")
    if kind != "passes":
        raise FrontendError(
            f"WHET_DEBUG={word} is not a valid value", try_=("passes", "passes:FOLDER")
        )
    return Printer(Path(folder) if folder else None)


class Printer:
    """Prints a line for every pass that changes a graph, and writes the graph if there is a folder.

    Files are numbered in the order of the passes, across all programs of the process.
    """

    numbers = count(1)

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, entry: str, before: Graph | None, after: Graph) -> None:
        if before is None or str(before) != str(after):
            print(line_of(name, entry, before, after), file=sys.stderr)  # noqa: T201
        if self.folder is not None:
            path = self.folder / f"{next(self.numbers):03}-{entry}-{name}.ir"
            path.write_text(f"{after}\n", encoding="utf-8")


def line_of(name: str, entry: str, before: Graph | None, after: Graph) -> str:
    """`train_step  fuse_layers  nodes 31 -> 25  peak 40,960 -> 36,864 (-4,096)`."""
    peak = lifetimes(after).peak[0]
    start = f"{entry:<12} {name:<18}"
    if before is None:
        return f"{start} nodes {len(after.nodes):>4} peak {peak:>11,}"
    old = lifetimes(before).peak[0]
    return (
        f"{start} nodes {len(before.nodes):>4} -> {len(after.nodes):<4} "
        f"peak {old:>11,} -> {peak:<11,} ({peak - old:+,})"
    )
