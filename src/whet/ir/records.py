"""Graphs, arrays and frozen dataclasses as plain JSON, with the arrays beside it.

This is what a saved program is made of. Reading builds nothing but the classes it is told, and
runs no code of the file's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .graph import (
    Array,
    Graph,
    Link,
    Loc,
    Node,
    Relation,
    Role,
    Type,
    Value,
    by_name,
    verify,
)
from .text import parse_type

TAG = "is"  # the key that says what an object of JSON stands for


class Writer:
    """Turns values into JSON; `arrays` are those that it refers to, by number."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def plain(self, x: Any) -> Any:
        if x is None or isinstance(x, (bool, str, int)):
            return x
        if isinstance(x, (float, np.floating)):
            return float(x) if math.isfinite(x) else {TAG: "float", "text": str(float(x))}
        if isinstance(x, (tuple, list)):
            return [self.plain(item) for item in x]
        if isinstance(x, frozenset):
            return {TAG: "set", "items": sorted(x)}
        if isinstance(x, Mapping):
            return {TAG: "map", "items": [[self.plain(k), self.plain(v)] for k, v in x.items()]}
        if isinstance(x, np.ndarray):
            return {TAG: "array", "number": self.array(x)}
        if isinstance(x, Type):
            return {TAG: "type", "text": str(x)}
        if isinstance(x, Graph):
            return self.graph(x)
        return self.record(x)

    def array(self, x: Array) -> int:
        """Its number; entry points share most of their arrays."""
        key = (x.dtype.str, x.shape, x.tobytes())
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(x)
        return self._numbers[key]

    def record(self, x: Any) -> dict[str, Any]:
        if not dataclasses.is_dataclass(x):
            raise TypeError(f"cannot write a {type(x).__name__}")
        own = {f.name: self.plain(getattr(x, f.name)) for f in dataclasses.fields(x)}
        return {TAG: type(x).__name__, **own}

    def graph(self, graph: Graph) -> dict[str, Any]:
        """Values by number: leaves, then the results of nodes in their order."""
        values = [*graph.leaves, *(v for node in graph.nodes for v in node.outs)]
        number = {value: i for i, value in enumerate(values)}
        nodes = [
            {
                "op": node.op.name,
                "ins": [number[v] for v in node.ins],
                "outs": [self.value(v) for v in node.outs],
                "attrs": {
                    f.name: self.plain(getattr(node.attrs, f.name))
                    for f in dataclasses.fields(node.attrs)
                },
                "loc": [node.loc.module, node.loc.op, node.loc.source],
            }
            for node in graph.nodes
        ]
        return {
            TAG: "graph",
            "name": graph.name,
            "leaves": [self.value(leaf) for leaf in graph.leaves],
            "nodes": nodes,
            "outputs": [number[v] for v in graph.outputs],
            "state": [[number[leaf], number[nxt]] for leaf, nxt in graph.state],
            "data": self.plain(graph.data),
        }

    def value(self, v: Value) -> list[str]:
        link = [v.link.relation.value, v.link.of] if v.link else []
        return [v.name, str(v.type), v.role.value, *link]


class Reader:
    """The inverse, for dataclasses of the given classes. What is not in order raises ValueError,
    TypeError, KeyError, IndexError or a WhetError."""

    def __init__(self, classes: Iterable[type[Any]], arrays: Mapping[int, Array]) -> None:
        self.classes = {cls.__name__: cls for cls in classes}
        self.arrays = arrays

    def read(self, x: Any) -> Any:
        if isinstance(x, list):
            return tuple(self.read(item) for item in x)
        if not isinstance(x, dict):
            return x
        kind = x[TAG]
        if kind == "float":
            return float(x["text"])
        if kind == "set":
            return frozenset(x["items"])
        if kind == "map":
            return {self.read(k): self.read(v) for k, v in x["items"]}
        if kind == "array":
            return self.arrays[x["number"]]
        if kind == "type":
            return parse_type(x["text"])
        if kind == "graph":
            return self.graph(x)
        fields = {name: self.read(value) for name, value in x.items() if name != TAG}
        return self.classes[kind](**fields)

    def graph(self, x: Mapping[str, Any]) -> Graph:
        values = [value_of(words) for words in x["leaves"]]
        leaves, nodes = tuple(values), []
        for node in x["nodes"]:
            op = by_name(node["op"])
            outs = tuple(value_of(words) for words in node["outs"])
            ins = tuple(values[at(i)] for i in node["ins"])
            attrs = op.Attrs(**{name: self.read(value) for name, value in node["attrs"].items()})
            nodes.append(Node(op, ins, outs, attrs, Loc(*map(str, node["loc"]))))
            values += outs
        outputs = tuple(values[at(i)] for i in x["outputs"])
        state = tuple((values[at(i)], values[at(k)]) for i, k in x["state"])
        graph = Graph(str(x["name"]), leaves, tuple(nodes), outputs, state, self.read(x["data"]))
        verify(graph)
        return graph


def at(number: int) -> int:
    """A position, which is never counted from the end."""
    if number < 0:
        raise IndexError(number)
    return number


def value_of(words: list[str]) -> Value:
    name, kind, role, *link = map(str, words)
    linked = Link(Relation(link[0]), link[1]) if link else None
    return Value(name, parse_type(kind), Role(role), linked)
