"""Store frozen weights in 8 bits, and widen each where a layer reads it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir import Builder, DType, Graph, Op, Role, Value
from ..ops.conv import Conv2d, Conv2dDx, Depthwise, DepthwiseDx
from ..ops.fused import Conv2dFused, DepthwiseFused, LinearFused
from ..ops.linear import Linear, LinearDx
from ..ops.stream import Stream
from ..ops.widen import Widen, narrowed
from ..plan import lifetimes
from ..plan import lives as lives_of

LAYERS: tuple[type[Op], ...] = (
    Conv2d, Conv2dDx, Depthwise, DepthwiseDx, Conv2dFused, DepthwiseFused, Linear, LinearDx,
    LinearFused, Stream,
)  # fmt: skip
LEAST = 256  # elements; below that the code costs more than it saves


def narrow_frozen(graph: Graph, trained: Collection[str]) -> Graph:
    """Weights that 8 bits and a scale for each output channel make up, to the last digit of f32.

    A weight is widened in the arena. Where that has no room for it at some reader, it stays.
    """
    lives = lifetimes(graph)
    peak, loads = lives.peak[0], lives_of(lives.buffers).loads
    used = [int(loads[i]) if i < len(loads) else 0 for i in range(len(graph.nodes))]
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    readers: dict[Value, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.ins:
            readers.setdefault(value, []).append(i)
    stored: dict[Value, tuple[Value, Value] | None] = {}

    def integers(leaf: Value) -> tuple[Value, Value] | None:
        if leaf not in stored:
            roomy = all(used[i] + leaf.type.bytes <= peak for i in readers[leaf])
            data = graph.data[leaf.name]
            found = narrowed(data, is_depthwise(leaf)) if roomy else None
            stored[leaf] = None if found is None else (
                b.const(found[0], f"{leaf.name}.narrow", DType.I8),
                b.const(found[1], f"{leaf.name}.scale"),
            )  # fmt: skip
        return stored[leaf]

    for node in graph.nodes:
        ins = list(node.ins)
        for i, leaf in enumerate(node.ins):
            if node.op in LAYERS and is_frozen(leaf, trained) and (parts := integers(leaf)):
                b.loc = node.loc
                name, last = f"{leaf.name}.wide", is_depthwise(leaf)
                ins[i] = b.emit(Widen, *parts, name=name, last=last)
        b.nodes.append(replace(node, ins=tuple(ins)))
    return b.finish(graph.outputs)


def is_frozen(leaf: Value, trained: Collection[str]) -> bool:
    weight = leaf.role in (Role.CONST, Role.PARAM) and leaf.type.rank >= 2
    large = leaf.type.dtype is DType.F32 and leaf.type.elements >= LEAST
    return weight and large and leaf.name not in trained


def is_depthwise(leaf: Value) -> bool:
    """Whose channels are the last axis."""
    return leaf.type.rank == 3
