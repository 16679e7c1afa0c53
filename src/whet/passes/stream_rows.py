"""Run frozen convolutions row by row, so that the large maps between them never exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from ..ir import Builder, Graph, Node, Op, Role, Type, Value
from ..memory.plan import lifetimes
from ..ops.fused import FusedLayer
from ..ops.stream import MOST, Stage, bytes_at_hand, replaces_operand, stage_of
from .rewriting import Uses

Roles = tuple[Role, ...]  # of operands that lie in the arena


def stream_rows(graph: Graph, inside: bool = False) -> Graph:
    """Chains of convolutions whose results nothing else reads become `stream` where that helps.

    A stream needs its operand, its result, and a few rows of everything between. First every
    chain is cut so that its largest need is as small as it can be; then as many layers as possible
    stay on their own without raising the peak again. If the input lies `inside` the arena, it may
    count or not, whichever ends lower.
    """
    apart = _with_streams(graph, False)
    if not inside:
        return apart
    together = _with_streams(graph, True)
    return min(apart, together, key=lambda g: lifetimes(g, inside=True).peak[0])


def _with_streams(graph: Graph, inside: bool) -> Graph:
    uses = Uses(graph)
    roles = (Role.TEMP, Role.INPUT) if inside else (Role.TEMP,)
    chains = _chains(graph, uses)
    if not chains:
        return graph
    before = lifetimes(graph, inside=inside).peak[0]
    limit = max(_smallest_limit(chain, uses, roles) for chain in chains)
    best = _streamed(graph, [_cut(chain, limit, uses, roles) for chain in chains])
    peak = lifetimes(best, inside=inside).peak[0]
    if peak >= before:
        return graph
    fewer = _streamed(graph, [_cut(chain, peak, uses, roles) for chain in chains])
    return fewer if lifetimes(fewer, inside=inside).peak[0] <= peak else best


def _chains(graph: Graph, uses: Uses) -> list[list[Node]]:
    """Runs of layers, each the only reader of the one before."""
    chains: list[list[Node]] = []
    chain_of: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not _streams(node):
            continue
        before = uses.producer.get(node.ins[0])
        follows = before in chain_of and uses.only_reader(node.ins[0]) is node
        chain = chain_of[before] if before is not None and follows else []
        if not chain:
            chains.append(chain)
        chain.append(node)
        chain_of[node] = chain
    return [chain for chain in chains if len(chain) > 1]


def _streams(node: Node) -> bool:
    """Whether a stream can hold the layer: it gives one result, from one image."""
    one = len(node.outs) == 1 and not getattr(node.attrs, "part", False)
    return one and _stream_of(node.op) is not None


def _stream_of(op: type[Op]) -> type[Op] | None:
    """The operator that a chain of these becomes; a plain layer is a fused one of no epilogue."""
    return (FusedLayer.of(op) or op).streamed


def _need(part: Sequence[Node], uses: Uses, roles: Roles) -> int:
    """Bytes that a part of a chain works on, run as one stream (or, a single layer, as it is)."""
    operands = {v for node in part for v in node.ins if v is part[0].ins[0] or _is_addend(v, node)}
    need = sum(v.type.bytes for v in operands if v.role in roles)
    need += 0 if _replaces_operand(part, uses) else part[-1].out.type.bytes
    for node in part[1:]:
        x, w = node.ins[0].type, node.ins[1].type
        need += bytes_at_hand(node.attrs, x, w)
    return need


def _replaces_operand(part: Sequence[Node], uses: Uses) -> bool:
    """Whether the result can take the place of the operand, as that of a residual block can."""
    x = part[0].ins[0]
    if any(node not in part for node in uses.readers[x]) or x.role is not Role.TEMP:
        return False
    return replaces_operand([_stage(node)[0] for node in part], _types(part))


def _types(part: Sequence[Node]) -> list[Type]:
    """Of the operand, of the first weight, and of every layer's result."""
    return [part[0].ins[0].type, part[0].ins[1].type, *(node.out.type for node in part)]


def _is_addend(value: Value, node: Node) -> bool:
    return bool(getattr(node.attrs, "add", False)) and value is node.ins[-1]


def _smallest_limit(chain: Sequence[Node], uses: Uses, roles: Roles) -> int:
    """The least that the neediest part can need, over all ways to cut the chain."""
    best = [0]
    for j in range(1, len(chain) + 1):
        starts = range(max(0, j - MOST), j)
        best.append(min(max(best[i], _need(chain[i:j], uses, roles)) for i in starts))
    return best[-1]


def _cut(chain: Sequence[Node], limit: int, uses: Uses, roles: Roles) -> list[Sequence[Node]]:
    """Parts that each need at most `limit`, with as few layers in streams as possible."""
    best: list[tuple[int, list[Sequence[Node]]] | None] = [(0, [])]
    for j in range(1, len(chain) + 1):
        options = []
        for i in range(max(0, j - MOST), j):
            head = best[i]
            fits = _need(chain[i:j], uses, roles) <= limit
            if head is not None and (i == j - 1 or fits):
                layers = j - i if i < j - 1 else 0 if fits else len(chain)
                options.append((head[0] + layers, [*head[1], chain[i:j]]))
        best.append(min(options, key=lambda option: option[0]) if options else None)
    assert best[-1] is not None
    return best[-1][1]


def _streamed(graph: Graph, cuts: Sequence[Sequence[Sequence[Node]]]) -> Graph:
    parts = {part[-1]: part for cut in cuts for part in cut if len(part) > 1}
    inside = {node for part in parts.values() for node in part[:-1]}
    b = Builder.extend(graph, graph.name)
    b.nodes = []
    for node in graph.nodes:
        if node in parts:
            b.loc = node.loc
            stages, operands = zip(*(_stage(n) for n in parts[node]), strict=True)
            first = parts[node][0].ins[0]
            attrs: dict[str, Any] = {"stages": tuple(stages)}
            if any(n.loc.module for n in parts[node]):
                attrs["modules"] = tuple(n.loc.module for n in parts[node])
            stream = _stream_of(node.op)
            assert stream is not None
            b.emit(stream, first, *(v for own in operands for v in own), **attrs)
            b.nodes[-1] = replace(b.nodes[-1], outs=node.outs)
        elif node not in inside:
            b.nodes.append(node)
    return b.finish(graph.outputs)


def _stage(node: Node) -> tuple[Any, tuple[Value, ...]]:
    op: Any = node.op  # a class, which mypy takes to be no key
    return _stage_of(op, node.attrs, len(node.ins) > 2), node.ins[1:]


@lru_cache(maxsize=4096)  # every way to cut a chain asks again
def _stage_of(op: Any, attrs: Any, bias: bool) -> Stage:
    layer: Any = FusedLayer.of(op) or op
    return stage_of(layer, layer.Attrs(**{"bias": bias} | asdict(attrs)))
