"""Print a graph as text; text.py describes the format and reads it back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # graph.py imports this module, for str(graph)
    from .graph import Array, Attributes, Graph, Node, Value

INLINE = 16  # elements of the largest constant whose values are part of the text


def print_attrs(attrs: Attributes) -> str:
    """Only what differs from the default, as `{stride=(2, 2)}`; empty if nothing does."""
    parts = [
        f"{field.name}={getattr(attrs, field.name)!r}"
        for field in dataclasses.fields(attrs)
        if getattr(attrs, field.name) != field.default
    ]
    return f" {{{', '.join(parts)}}}" if parts else ""


def print_node(node: Node) -> str:
    outs = ", ".join(map(str, node.outs))
    ins = " " + ", ".join(map(str, node.ins)) if node.ins else ""
    types = ", ".join(str(v.type) for v in node.outs)
    return f"{outs} = {node.op.name}{ins}{print_attrs(node.attrs)} : {types}"


def summary(node: Node) -> str:
    """The node for readers: as it is printed, but a stream by the layers it runs."""
    if not (modules := getattr(node.attrs, "modules", ())):
        return print_node(node)
    types = ", ".join(str(v.type) for v in node.outs)
    return f"{node.out} = {node.op.name} {node.ins[0]} through {', '.join(modules)} : {types}"


def print_leaf(leaf: Value, data: Array | None) -> str:
    word = leaf.role.value
    line = f"{leaf} : {leaf.type} {word}"
    if word == "const" and data is not None and data.size <= INLINE:
        line += f" = [{', '.join(map(str, data.ravel()))}]"
    return line


def print_graph(graph: Graph) -> str:
    lines = [print_leaf(v, graph.data.get(v.name)) for v in graph.leaves]
    lines += [print_node(n) for n in graph.nodes]
    lines += [f"state {leaf} <- {nxt}" for leaf, nxt in graph.state]
    lines.append(("return " + ", ".join(map(str, graph.outputs))).rstrip())
    return "\n".join([f"graph {graph.name} {{", *(f"  {line}" for line in lines), "}"])
