"""Parse the text of a graph; printing the result (see printing.py) gives the same text.

    graph step {
      %x : f32[3,4] input
      %fc.weight : f32[2,4] param
      %fc = linear %x, %fc.weight : f32[3,2]
      state %fc.weight <- %fc.weight.next
      return %fc
    }

Names are one word each: spaces, commas and the like are escapes, see `names`.
Constants of up to 16 elements carry their values (`const = [0.5]`); larger arrays, and the values
of parameters, are not part of the text and are handed to `parse_graph` beside it. Nor are links
between values: a graph that is parsed means the same, but what reads links (the reports, the
trainer) finds none in it.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InternalError, WhetError
from ..names import unquoted
from .graph import (
    Array,
    Builder,
    DType,
    Graph,
    Loc,
    Role,
    Type,
    Value,
    by_name,
    verify,
)

NAME = r"%[^\s,]+"
LEAF = re.compile(rf"({NAME}) : (\S+) (\w+)(?: = (\[.*\]))?$")
NODE = re.compile(rf"((?:{NAME}, )*{NAME}) = (\w+)((?: {NAME},)* {NAME})?(?: \{{(.*)\}})? : (.+)$")
TYPE = re.compile(r"(\w+)\[([\d,]*)\]$")


def parse_type(text: str) -> Type:
    match = TYPE.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a type")
    dtype = next((d for d in DType if d.label == match[1]), None)
    if dtype is None:
        raise ValueError(f"{match[1]!r} is not an element type")
    return Type(dtype, tuple(int(n) for n in match[2].split(",") if n))


def parse_attributes(text: str) -> dict[str, Any]:
    """Attributes as in `axis=1, high=inf`: Python literals by name."""
    literals = re.sub(r"\binf\b", "1e999", text)
    try:
        call = ast.parse(f"f({literals})", mode="eval").body
        assert isinstance(call, ast.Call)
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, SyntaxError):
        raise ValueError(f"{{{text}}} are not attributes") from None


def parse_graph(text: str, data: Mapping[str, Array] | None = None) -> Graph:
    """The Graph that `text` describes; InternalError names the first invalid line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    parser = _Parser(lines[0] if lines else "", data or {})
    for number, line in enumerate(lines[1:], start=2):
        try:
            parser.line(line)
        except (ValueError, TypeError, WhetError) as error:
            what = error.what if isinstance(error, WhetError) else error
            raise InternalError(f"IR text, line {number}: {what}", at=line) from error
    return parser.graph()


class _Parser:
    def __init__(self, header: str, data: Mapping[str, Array]) -> None:
        match = re.match(r"graph (\w+) \{$", header)
        if not match:
            raise InternalError("IR text must begin with `graph NAME {`", at=header)
        self.builder = Builder(match[1])
        self.data = data
        self.values: dict[str, Value] = {}
        self.outputs: list[Value] = []

    def line(self, line: str) -> None:
        if not line or line == "}" or line.startswith("#"):
            return
        if line.startswith("return"):
            names = line.removeprefix("return").split(",")
            self.outputs = [self.value(n) for n in names if n.strip()]
        elif line.startswith("state "):
            leaf, nxt = line.removeprefix("state ").split(" <- ")
            self.builder.update(self.value(leaf), self.value(nxt))
        elif match := LEAF.match(line):
            self.leaf(*match.groups())
        elif match := NODE.match(line):
            self.node(*match.groups())
        else:
            raise ValueError("neither a leaf, a node, an update nor a return")

    def value(self, name: str) -> Value:
        if name.strip() not in self.values:
            raise ValueError(f"{name.strip()} is not defined")
        return self.values[name.strip()]

    def define(self, name: str, value: Value) -> None:
        if name in self.values:
            raise ValueError(f"{name} is defined twice")
        self.values[name] = value

    def leaf(self, name: str, type_: str, role: str, inline: str | None) -> None:
        kind = parse_type(type_)
        data = self.data.get(unquoted(name[1:]))
        if inline is not None:
            words = [w for w in inline[1:-1].split(",") if w.strip()]
            data = np.array([float(w) for w in words]).reshape(kind.shape)
        self.define(name, self.builder.leaf(unquoted(name[1:]), kind, Role(role), data))

    def node(self, outs: str, op: str, ins: str | None, attrs: str | None, types: str) -> None:
        operands = [self.value(n) for n in (ins or "").split(",") if n.strip()]
        keywords = parse_attributes(attrs or "")
        self.builder.loc = Loc()
        words = [n.strip() for n in outs.split(",")]
        names = [unquoted(word[1:]) for word in words]
        results = self.builder.emit_all(by_name(op), *operands, name=names[0], **keywords)
        expected = [parse_type(t) for t in re.findall(r"\w+\[[\d,]*\]", types)]
        if [r.type for r in results] != expected:
            raise ValueError(f"{op} gives {', '.join(str(r.type) for r in results)}")
        renamed = tuple(dataclasses.replace(r, name=n) for r, n in zip(results, names, strict=True))
        self.builder.nodes[-1] = dataclasses.replace(self.builder.nodes[-1], outs=renamed)
        for word, value in zip(words, renamed, strict=True):
            self.define(word, value)

    def graph(self) -> Graph:
        b = self.builder
        graph = Graph(
            b.name, tuple(b.leaves), tuple(b.nodes), tuple(self.outputs), tuple(b.state), b.data
        )
        verify(graph)
        return graph
