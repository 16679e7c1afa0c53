"""Run passes over graphs in order, without those that are disabled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Any

from ..ir import Graph, Part, verify
from ..memory.plan import lifetimes
from .frozen_forms import Form
from .machine import UNTUNED, Machine

Entries = Mapping[str, Graph]
Observer = Callable[[str, str, Graph | None, Graph], None]  # pass, entry point, before, after


class Stage(Enum):
    MODEL = "model"  # before differentiation: on the model with its loss, and on the model alone
    STEP = "step"  # after differentiation: on every entry point of the program


@dataclass(frozen=True)
class Recompute:
    """Whether values may be recomputed to save memory, and the arena size to reach."""

    layers: bool = False  # convolutions and matrix products too, not only element-wise operators
    limit: int = 0


@dataclass(frozen=True)
class Context:
    """What passes know about a program besides its graphs."""

    without: Collection[str] = ()  # names of passes to skip
    changing: Collection[str] = ()  # leaves that training changes
    parts: Mapping[str, Part] = field(default_factory=dict)  # leaves that train in place of others
    gradients: str = "float32"  # of integer layers
    recompute: Recompute | None = None
    inside: bool = False  # inputs may be inside the arena
    single: bool = False  # the program also predicts single samples
    cached: bool = False  # results of the frozen beginning are kept for each sample
    generate: bool = False  # the program also writes texts, token by token
    narrow: Form | None = None  # how frozen weights are stored
    products: Collection[str] = ()  # what linear layers multiply, if not float32
    vectors: bool = False  # vector kernels are available
    machine: Machine = UNTUNED  # for the choice of kernels
    grow: bool = False  # a large program may use more memory for faster kernels
    observe: Observer | None = None  # called with every graph that a pass has produced

    @property
    def inplace(self) -> bool:
        return "inplace" not in self.without

    @property
    def limit(self) -> int:
        return self.recompute.limit if self.recompute else 0

    @property
    def layers(self) -> bool:
        return self.recompute is not None and self.recompute.layers


def always(_: Context) -> bool:
    return True


@dataclass(frozen=True)
class Pass:
    """A pass: `run(graph, ...)`, or `run(entries, ...)` if it takes the whole program."""

    run: Callable[..., Any]
    stage: Stage
    told: tuple[str, ...] = ()  # members of the context that `run` takes
    switch: bool = True  # `without` may disable it
    program: bool = False  # it takes all entry points together
    when: Callable[[Context], bool] = always
    # Later passes run on the graph with and without this pass; the smaller peak wins.
    alternative: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    def wanted(self, context: Context) -> bool:
        return self.when(context) and not (self.switch and self.name in context.without)

    def __call__(self, given: Any, context: Context) -> Any:
        return self.run(given, *(getattr(context, word) for word in self.told))


def run_passes(passes: Iterable[Pass], entries: Entries, context: Context) -> dict[str, Graph]:
    """The graphs after all enabled passes, in order."""
    wanted = [p for p in passes if p.wanted(context)]
    for program, group in groupby(wanted, key=lambda p: p.program):
        for_all = list(group)
        if not program:
            entries = {n: _on_graph(for_all, n, graph, context) for n, graph in entries.items()}
            continue
        for step in for_all:
            before, entries = entries, step(entries, context)
            for name, graph in entries.items():
                _check(before.get(name), graph)
                _show(step, name, before.get(name), graph, context)
    return dict(entries)


def _on_graph(passes: Sequence[Pass], entry: str, graph: Graph, context: Context) -> Graph:
    for i, step in enumerate(passes):
        after: Graph = step(graph, context)
        _check(graph, after)
        if step.alternative and after is not graph:
            rest, unseen = passes[i + 1 :], replace(context, observe=None)
            ways = [(_on_graph(rest, entry, g, unseen), g) for g in (graph, after)]
            end, after = min(ways, key=lambda way: lifetimes(way[0], inside=context.inside).peak[0])
            if context.observe is None:
                return end  # else the passes run again, to show only the way that was taken
        _show(step, entry, graph, after, context)
        graph = after
    return graph


def _check(before: Graph | None, after: Graph) -> None:
    if after is not before:
        verify(after)


def _show(step: Pass, entry: str, before: Graph | None, after: Graph, context: Context) -> None:
    if context.observe is not None:
        context.observe(step.name, entry, before, after)
