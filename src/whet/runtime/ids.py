"""Labels and ids that a program looks up: what it allows, and what it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..ir import Array, Graph, Value


def bounds(graph: Graph) -> Iterator[tuple[str, int, int]]:
    """Of every array that is looked up: its name, the number of rows, and the exempt value.

    The array is the leaf that the ids come from, if they are only moved on their way.
    """
    made = {out: node for node in graph.nodes for out in node.outs}

    def source(value: Value) -> Value:
        while (node := made.get(value)) and (node.op.view or node.op.moves):
            value = node.ins[0]
        return value

    for node in graph.nodes:
        for place, (limit, exempt) in node.op.bounds(node).items():
            yield source(node.ins[place]).name, limit, exempt


def out_of_range(graph: Graph, feed: Mapping[str, Array]) -> list[str]:
    """What the arrays hold that have an id which is not allowed."""
    found: list[str] = []
    for name, limit, exempt in bounds(graph):
        ids = feed.get(name)
        if ids is not None and (((ids < 0) | (ids >= limit)) & (ids != exempt)).any():
            found += ranges(graph, {name: ids})
    return found


def ranges(graph: Graph, feed: Mapping[str, Array]) -> list[str]:
    """What each array of ids holds, and what the program allows."""
    allowed = {
        name: f"; allowed are 0 to {limit - 1}" + ignored(exempt)
        for name, limit, exempt in bounds(graph)
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
    return [
        f"all of {name} is {exempt}, which does not count"
        for name, _, exempt in bounds(graph)
        if exempt < 0 and name in feed and (feed[name] == exempt).all()
    ]
