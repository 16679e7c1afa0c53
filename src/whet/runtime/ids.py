"""Labels and ids that a program looks up: what it allows, and what it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..ir import Array, DType, Graph, Role, Value


@dataclass(frozen=True)
class LookUp:
    """An array that is looked up; it is given by the caller, or made of what is."""

    name: str  # of what the caller gives
    ids: Array | None  # None if they are computed of more than that
    limit: int
    exempt: int

    @property
    def wrong(self) -> bool:
        ids = self.ids
        if ids is None:
            return False
        return bool((((ids < 0) | (ids >= self.limit)) & (ids != self.exempt)).any())


def look_ups(graph: Graph, feed: Mapping[str, Array]) -> Iterator[LookUp]:
    """Of every place where the program looks something up: moves of what is given are followed."""
    made = {out: node for node in graph.nodes for out in node.outs}

    def origin(value: Value) -> Value:
        while node := made.get(value):
            value = next((v for v in node.ins if v.type.dtype is DType.I32), node.ins[0])
        return value

    def ids_of(value: Value) -> Array | None:
        node = made.get(value)
        if node is None:
            return feed.get(value.name, graph.data.get(value.name))
        parts = [ids_of(v) for v in node.ins if v.type.dtype is DType.I32]
        given = [part for part in parts if part is not None]
        if len(given) < len(node.ins):
            return None
        return np.asarray(node.op.ref(node.attrs, *given))

    for node in graph.nodes:
        for place, (limit, exempt) in node.op.bounds(node).items():
            value = node.ins[place]
            if origin(value).role in (Role.INPUT, Role.LABEL):
                yield LookUp(origin(value).name, ids_of(value), limit, exempt)


def out_of_range(graph: Graph, feed: Mapping[str, Array]) -> list[str]:
    """What the arrays hold that have an id which is not allowed."""
    wrong = dict.fromkeys(look.name for look in look_ups(graph, feed) if look.wrong)
    return [line for name in wrong for line in ranges(graph, {name: feed[name]})]


def ranges(graph: Graph, feed: Mapping[str, Array]) -> list[str]:
    """What each array of ids holds, and what the program allows."""
    allowed = {
        look.name: f"; allowed are 0 to {look.limit - 1}" + ignored(look.exempt)
        for look in look_ups(graph, {})
    }
    return [
        f"{name} holds {int(a.min())} to {int(a.max())}{allowed.get(name, '')}"
        for name, a in feed.items()
        if a.dtype == np.int32
    ]


def ignored(exempt: int) -> str:
    return f", and {exempt} to be ignored" if exempt < 0 else ""


def uncounted(graph: Graph, feed: Mapping[str, Array]) -> list[str]:
    """Labels that are all to be ignored, so that there is nothing to average."""
    found = []
    for look in look_ups(graph, feed):
        if look.exempt < 0 and look.ids is not None and (look.ids == look.exempt).all():
            all_of = (feed[look.name] == look.exempt).all()
            part = "all" if all_of else "what is compared"
            found.append(f"{part} of {look.name} is {look.exempt}, which does not count")
    return found
