"""Graphs before and after a pass: as text, in meaning, and in memory."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Collection

import numpy as np

import strategies
from whet.ir import Graph, Role, verify
from whet.ir.interp import interpret
from whet.ir.text import parse_graph
from whet.memory.plan import Buffer, lifetimes
from whet.passes import Pass


def parse(text: str) -> Graph:
    """The graph, with numbers in its parameters and state: squares of integers, over 2."""
    bare = parse_graph(text)
    rng = np.random.default_rng(1)
    leaves = bare.leaves_of(Role.PARAM, Role.STATE)
    return parse_graph(text, {v.name: rng.integers(1, 9, v.shape) ** 2 / 2 for v in leaves})


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
    assert str(result) == whole_graph(textwrap.dedent(before).strip(), after)
    assert_same_meaning(graph, result, rtol)
    return result


def whole_graph(before: str, after: str | None) -> str:
    """The text of the graph `after`, with the leaves of `before` if it has none."""
    if after is None:
        return before
    text = textwrap.dedent(after).strip()
    if text.startswith("graph"):
        return text
    name, *rest = before.splitlines()
    leaves = itertools.takewhile(lambda line: line.startswith("  %") and " = " not in line, rest)
    return "\n".join([name, *leaves, textwrap.indent(text, "  "), "}"])


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def peak(graph: Graph) -> int:
    return lifetimes(graph).peak[0]


def buffer_of(graph: Graph, name: str) -> Buffer:
    (found,) = [b for b in lifetimes(graph).buffers if name in [v.name for v in b.values]]
    return found
