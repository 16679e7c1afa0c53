"""Graphs before and after a pass: as text, in meaning, and in memory."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Collection, Mapping

import numpy as np

import strategies
from whet.ir import Array, Graph, Role, verify
from whet.ir.interp import interpret
from whet.ir.text import parse_graph
from whet.memory.plan import Buffer, lifetimes
from whet.passes import Pass


def full_text(text: str) -> str:
    """The text of a graph, of which tests write the lines inside the braces alone.

    Leaves may share a line, with `;` between them.
    """
    text = textwrap.dedent(text).strip()
    if text.startswith("graph"):
        return text
    lines = [part.strip() for line in text.splitlines() for part in line.split(";")]
    return "\n".join(["graph g {", *(f"  {line}" for line in lines), "}"])


def parse(text: str, data: Mapping[str, Array] | None = None) -> Graph:
    """The graph, with `data` in its leaves, or else with numbers in its parameters and state:
    squares of integers, over 2."""
    text = full_text(text)
    if data is None:
        rng = np.random.default_rng(1)
        leaves = parse_graph(text).leaves_of(Role.PARAM, Role.STATE)
        data = {v.name: rng.integers(1, 9, v.shape) ** 2 / 2 for v in leaves}
    return parse_graph(text, data)


def assert_same_meaning(
    before: Graph, after: Graph, rtol: float = 0.0, changing: Collection[str] = ()
) -> None:
    """Equal outputs and next states, also after some leaves have changed; in double, if roundings
    may differ."""
    verify(after)
    rng = np.random.default_rng(2)
    changed = {v.name: rng.normal(size=v.shape) for v in before.leaves if v.name in changing}
    feed = strategies.feed(before, seed=3) | changed
    real = np.float64 if rtol else np.float32
    (right, next_right), (given, next_given) = (
        interpret(g, feed, real=real) for g in (before, after)
    )
    assert next_given.keys() == next_right.keys()
    for name, one, other in [
        *(("output", *pair) for pair in zip(given, right, strict=True)),
        *((n, next_given[n], next_right[n]) for n in next_right),
    ]:
        if rtol:
            np.testing.assert_allclose(one, other, rtol, atol=1e-9, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, name)


def expect(step: Pass, before: str, after: str | None = None, rtol: float = 0.0) -> Graph:
    """The pass makes `after` out of `before`, or leaves it as it is, and the meaning stays.

    `after` is a graph, or its nodes alone if the leaves are those of `before`.
    """
    graph = parse(before)
    result = step(graph)
    assert str(result) == whole_graph(full_text(before), after)
    assert_same_meaning(graph, result, rtol)
    return result


def whole_graph(before: str, after: str | None) -> str:
    """The text of the graph `after`, with the leaves of `before` if it has none."""
    if after is None:
        return before
    text = full_text(after)
    (name, *rest), (_, *nodes) = before.splitlines(), text.splitlines()
    if is_leaf(nodes[0]):
        return text
    return "\n".join([name, *itertools.takewhile(is_leaf, rest), *nodes])


def is_leaf(line: str) -> bool:
    return re.match(r"  %\S+ :", line) is not None


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def peak(graph: Graph) -> int:
    return lifetimes(graph).peak[0]


def buffer_of(graph: Graph, name: str) -> Buffer:
    (found,) = [b for b in lifetimes(graph).buffers if name in [v.name for v in b.values]]
    return found
