"""Recognise rotary position embedding that a model spells out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ..ir import Array, Builder, Graph, Node, Value
from ..ops.binary import Add, Mul
from ..ops.rotary import Rotary, walk
from ..ops.shape import Concat, Reshape, Slice
from ..ops.unary import Neg, Unary
from .rewriting import rewrite
from .spelling import Spelling, sides


@dataclass(frozen=True)
class Turn:
    x: Value
    cos: Value
    sin: Value


def fuse_rotary(graph: Graph, changing: Collection[str]) -> Graph:
    """x * cos + cat(-x2, x1) * sin becomes one operator, where x1 and x2 are the halves of x.

    Also for the first channels alone, with the others behind them. Nothing is moved or negated any
    more, and nothing but cos and sin is kept for the backward pass. Both halves of cos and of sin
    must be the same; one is stored, once for all layers and heads.
    """
    turns = find(graph, changing)
    tables = Tables(Spelling(graph))

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        turn = turns.get(node.outs[0])
        if turn is None:
            return None
        rank = turn.x.type.rank
        cos = tables.half(b, turn.cos, rank, "rotary.cos")
        sin = tables.half(b, turn.sin, rank, "rotary.sin")
        return (b.emit(Rotary, turn.x, cos, sin, name=node.out.name),)

    return rewrite(graph, rule)


class Tables:
    """The first halves of tables, each of them once."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.made: dict[object, Value] = {}

    def half(self, b: Builder, value: Value, rank: int, name: str) -> Value:
        """With as many axes."""
        width = value.shape[-1] // 2
        shape = (*(1,) * (rank - value.type.rank), *value.shape[:-1], width)
        array, root = self.spelling.array(value), self.spelling.uses.root(value)
        key: object = (shape, array.tobytes()) if array is not None else root
        if key not in self.made and array is not None:
            self.made[key] = b.const(array[..., :width].reshape(shape), name)
        elif key not in self.made:  # all layers have views of one value
            whole = root if root.shape[-1:] == value.shape[-1:] else value
            axis = whole.type.rank - 1
            self.made[key] = b.emit(Slice, whole, name=name, axis=axis, stop=width)
        found = self.made[key]
        return found if found.shape == shape else b.emit(Reshape, found, name=name, shape=shape)


def find(graph: Graph, changing: Collection[str]) -> dict[Value, Turn]:
    """Results of rotations."""
    spelling = Spelling(graph)
    trained = depending(graph, changing)
    turns: dict[Value, Turn] = {}
    for node in graph.nodes:
        if node.op is Add:
            turn = rotation(spelling, node)
            if turn is not None and not trained.intersection((turn.cos, turn.sin)):
                turns[node.out] = turn
        elif node.op is Concat and len(node.ins) == 2 and node.ins[0] in turns:
            whole = of_first_channels(spelling, node, turns[node.ins[0]])
            if whole is not None:
                del turns[node.ins[0]]
                turns[node.out] = whole
    return turns


def depending(graph: Graph, changing: Collection[str]) -> set[Value]:
    """Values that depend on what training changes."""
    found = {leaf for leaf in graph.leaves if leaf.name in changing}
    for node in graph.nodes:
        if found.intersection(node.ins):
            found.update(node.outs)
    return found


def rotation(spelling: Spelling, node: Node) -> Turn | None:
    for straight, crossed in sides(node):
        first, second = (spelling.inner(v, Mul) for v in (straight, crossed))
        if first is None or second is None:
            continue
        for halves, sin in sides(second):
            x = turned(spelling, halves)
            if x is None or x not in first.ins:
                continue
            cos = first.ins[1] if first.ins[0] is x else first.ins[0]
            if fits(spelling, x, cos) and fits(spelling, x, sin) and cos.shape == sin.shape:
                return Turn(x, cos, sin)
    return None


def turned(spelling: Spelling, value: Value) -> Value | None:
    """x, of which the value is cat(-x2, x1)."""
    cat = spelling.inner(value, Concat)
    if cat is None or len(cat.ins) != 2 or cat.attrs.axis != value.type.rank - 1:
        return None
    negative = spelling.inner(cat.ins[0], Neg)
    second = negative and spelling.inner(negative.ins[0], Slice)
    first = spelling.inner(cat.ins[1], Slice)
    if first is None or second is None or first.ins != second.ins:
        return None
    x, half = first.ins[0], value.shape[-1] // 2
    ranges = [(0, half), (half, 2 * half)]
    given = [taken(part) for part in (first, second)]
    return x if given == ranges and x.shape == value.shape else None


def taken(part: Node) -> tuple[int, int] | None:
    """The channels that a slice takes, if it takes channels."""
    a, (x,) = part.attrs, part.ins
    return (a.start, a.stop) if a.axis == x.type.rank - 1 and a.step == 1 else None


def fits(spelling: Spelling, x: Value, table: Value) -> bool:
    """Whether the table has two equal halves, and rows that the operator can read."""
    if table.shape[-1:] != x.shape[-1:] or table.type.rank > x.type.rank:
        return False
    kind = table.type
    aligned = (1,) * (x.type.rank - kind.rank) + kind.shape
    pairs = zip(aligned[:-1], x.shape[:-1], strict=True)
    if not all(n in (1, m) for n, m in pairs):
        return False
    return walk(x.type, type(kind)(kind.dtype, aligned)) is not None and repeats(spelling, table)


def repeats(spelling: Spelling, table: Value) -> bool:
    """Whether the second half along the last axis is the first once more."""
    array = spelling.array(table)
    if array is not None:
        return equal_halves(array)
    node = spelling.uses.producer.get(table)
    if node is None:
        return False
    if node.op is Concat:
        same = len(node.ins) == 2 and node.ins[0] is node.ins[1]
        return same and node.attrs.axis == table.type.rank - 1
    if issubclass(node.op, Unary):
        return repeats(spelling, node.ins[0])
    if node.op is Reshape:
        return node.ins[0].shape[-1:] == table.shape[-1:] and repeats(spelling, node.ins[0])
    if node.op in (Mul, Add):
        return any(
            spelling.number(b) is not None and a.shape == table.shape and repeats(spelling, a)
            for a, b in sides(node)
        )
    return False


def equal_halves(array: Array) -> bool:
    n = array.shape[-1]
    return n % 2 == 0 and bool(np.array_equal(array[..., : n // 2], array[..., n // 2 :]))


def of_first_channels(spelling: Spelling, node: Node, turn: Turn) -> Turn | None:
    """The same of all channels, if `turn` is of the first of x, and the others follow."""
    rest, first = spelling.inner(node.ins[1], Slice), spelling.made(turn.x, Slice)
    if rest is None or first is None or spelling.uses.only_reader(node.ins[0]) is not node:
        return None
    (x,), (cut,) = first.ins, turn.x.shape[-1:]
    if rest.ins != (x,) or node.attrs.axis != x.type.rank - 1 or node.out.shape != x.shape:
        return None
    if taken(first) != (0, cut) or taken(rest) != (cut, x.shape[-1]):
        return None
    return Turn(x, turn.cos, turn.sin)
