"""Show what every stage and every pass does to the graphs of a program.

`WHET_DEBUG=passes` prints a line on standard error for each step that changed a graph: the number
of nodes and the peak of live bytes, before and after. `WHET_DEBUG=passes:FOLDER` also writes the
graph after every step to FOLDER. `observing` hands the graphs to a function instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path

from .errors import FrontendError
from .ir import Graph
from .memory.plan import lifetimes
from .passes import PASSES, Observer, Stage

# What is shown, in order: the stages of the pipeline that make graphs, and the passes.
ON_MODEL = ("import", "quantize", *(p.name for p in PASSES if p.stage is Stage.MODEL))
STEPS = (*ON_MODEL, "differentiate", *(p.name for p in PASSES if p.stage is Stage.STEP))
# The graph that an entry point is made from; up to `differentiate` there are only these.
MODEL_OF = {"train_step": "training", "predict": "prediction"}

_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observing(by: Observer) -> Iterator[None]:
    """Show `by` every graph of the programs that are compiled inside."""
    token = _observer.set(by)
    try:
        yield
    finally:
        _observer.reset(token)


def observer() -> Observer | None:
    """The one of `observing`, or the one that WHET_DEBUG asks for."""
    if (given := _observer.get()) is not None:
        return given
    if not (word := os.environ.get("WHET_DEBUG", "")):
        return None
    kind, _, folder = word.partition(":")
    if kind != "passes":
        raise FrontendError(
            f"WHET_DEBUG={word} is not a valid value", try_=("passes", "passes:FOLDER")
        )
    return Printer(Path(folder) if folder else None)


def show(stage: str, after: Mapping[str, Graph], before: Mapping[str, Graph] | None = None) -> None:
    """Show the graphs that a stage of the pipeline has made."""
    if (observe := observer()) is not None:
        for name, graph in after.items():
            observe(stage, name, before.get(name) if before else None, graph)


def check_step(name: str) -> str:
    if name not in STEPS:
        raise FrontendError(f"there is no pass {name!r}", try_=", ".join(STEPS))
    return name


class Recorder:
    """Keeps the graphs of one entry point, before and after every step."""

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self.seen: dict[str, tuple[str, Graph | None, Graph]] = {}

    def __call__(self, step: str, entry: str, before: Graph | None, after: Graph) -> None:
        if entry in (self.entry, MODEL_OF.get(self.entry)):
            self.seen[step] = entry, before, after

    def after(self, step: str) -> tuple[Graph, str]:
        """The graph that a step left, and a line about what it changed."""
        if step not in self.seen:
            raise FrontendError(
                f"{step} did not run on {self.entry} of this program", try_=", ".join(self.seen)
            )
        return self.seen[step][-1], line_of(step, *self.seen[step])


class Printer:
    """Prints a line for every step that changes a graph, and writes the graph if there is a folder.

    Files are numbered in the order of the steps, across all programs of the process.
    """

    numbers = count(1)

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, step: str, entry: str, before: Graph | None, after: Graph) -> None:
        if before is None or str(before) != str(after):
            print(line_of(step, entry, before, after), file=sys.stderr)  # noqa: T201
        if self.folder is not None:
            path = self.folder / f"{next(self.numbers):03}-{entry}-{step}.ir"
            path.write_text(f"{after}\n", encoding="utf-8")


def line_of(step: str, entry: str, before: Graph | None, after: Graph) -> str:
    """`train_step  fuse_layers  nodes 31 -> 25  peak 40,960 -> 36,864 (-4,096)`."""
    peak = lifetimes(after).peak[0]
    start = f"{entry:<12} {step:<18}"
    if before is None:
        return f"{start} nodes {len(after.nodes):>4}         peak {peak:>11,}"
    old = lifetimes(before).peak[0]
    return (
        f"{start} nodes {len(before.nodes):>4} -> {len(after.nodes):<4} "
        f"peak {old:>11,} -> {peak:<11,} ({peak - old:+,})"
    )
