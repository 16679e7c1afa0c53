"""What an integer graph still does in float32, and the warning that names it."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import DType, Graph, Node, Role, Value


def from_input(graph: Graph) -> set[Value]:
    """The inputs, and all that depends on one."""
    found = set(graph.leaves_of(Role.INPUT))
    for node in graph.nodes:
        if found.intersection(node.ins):
            found.update(node.outs)
    return found


def computes(node: Node) -> bool:
    """Whether it works on floats: a view has nothing to do, and indices are integers."""
    return not node.op.view and any(v.type.dtype is DType.F32 for v in (*node.ins, *node.outs))


def message(nodes: Sequence[Node], inputs: Sequence[Value]) -> str:
    """A line for every kind of operator, the dearest first, and for every input in float32."""
    kinds: dict[str, list[Node]] = {}
    for node in nodes:
        kinds.setdefault(node.op.name, []).append(node)
    one = len(nodes) == 1
    who, whose = ("1 operator", "its") if one else (f"{len(nodes)} operators", "their")
    return "\n".join([
        f"{who} of the network stay{'s' * one} in float32, between dequantizing and quantizing; "
        f"{whose} results take {kib(cost(nodes)[1])}, up to four times what int8 would:",
        *(line(alike) for alike in sorted(kinds.values(), key=cost, reverse=True)),
        *(f"  {leaf.name} is float32, too: {kib(leaf.type.bytes)}" for leaf in inputs),
    ])  # fmt: skip


def cost(nodes: Sequence[Node]) -> tuple[int, int]:
    """Multiply-accumulates, and bytes of results."""
    return sum(n.op.macs(n) for n in nodes), sum(v.type.bytes for n in nodes for v in n.outs)


def line(nodes: Sequence[Node]) -> str:
    """Operators of one kind: how many, where, and what they cost together."""
    macs, size = cost(nodes)
    first, *others = dict.fromkeys(str(n.loc) or str(n.out) for n in nodes)
    count = f"{len(nodes)} x " if len(nodes) > 1 else ""
    more = f" and {len(others)} other place{'s' * (len(others) > 1)}" if others else ""
    work = f", {macs:,} multiply-accumulates" if macs else ""
    return f"  {count}{nodes[0].op.name} at {first}{more}: {kib(size)}{work}"


def kib(size: int) -> str:
    return f"{size / 1024:,.1f} KiB"
