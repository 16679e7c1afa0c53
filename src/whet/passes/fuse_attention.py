"""Attention that a model spells out, with a softmax between two products, as one operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..ir import Array, Builder, DType, Graph, Node, Role, Value
from ..ops.attention import WIDEST, Attention
from ..ops.binary import Add, Div, Mul, Where
from ..ops.linear import Bmm
from ..ops.shape import Reshape, Transpose
from ..ops.softmax import Softmax
from .moves import Makers, in_order
from .rewriting import Uses, rewrite

FINAL = -1e30  # added to a score, or in place of it: both are rounded to this number


@dataclass(frozen=True)
class Scores:
    """scale * (a product) + mask; or, where a mask of bits is 0 (or 1, if `inverse`), `instead`."""

    product: Node
    scale: float = 1.0
    mask: Value | None = None
    instead: float = 0.0
    inverse: bool = False


def fuse_attention(graph: Graph) -> Graph:
    """bmm(softmax(scale * bmm(q, k) + mask), v) becomes `attention`, which holds no weights.

    Nothing else may read the weights or the scores, and the mask may not depend on parameters,
    because it gets no gradient. A query that sees no key gives 0, where a softmax gives NaN; if
    finite numbers may hide all of its keys, attention stays as it is.
    """
    reader = Reader(graph)

    def rule(b: Builder, node: Node) -> tuple[Value, ...] | None:
        reader.makers.see(b)
        if node.op is not Bmm or node.attrs.ta:
            return None
        softmax = reader.maker(node.ins[0])
        if softmax is None or softmax.op is not Softmax:
            return None
        x = softmax.ins[0]
        along = softmax.attrs.axis == x.type.rank - 1 and x.type.rank in (3, 4)
        scores = next(reader.scores(x), None) if along else None
        if scores is None or scores.product.out.shape != node.ins[0].shape:
            return None
        return fused(b, reader.makers, node, scores, x.shape)

    return rewrite(graph, rule)


class Reader:
    """Reads values as the scores of an attention, from the last operation to the first."""

    def __init__(self, graph: Graph) -> None:
        self.data, self.uses, self.makers = graph.data, Uses(graph), Makers()

    def maker(self, value: Value) -> Node | None:
        """The node that made the value, which may be viewed since, if nothing else reads it."""
        while self.uses.only_reader(value) is not None:
            node = self.makers.of.get(value)
            if node is None or node.op is not Reshape:
                return node
            value = node.ins[0]
        return None

    def scores(self, x: Value) -> Iterator[Scores]:
        """What x may be read as: one way, as a rule, or none."""
        node = self.maker(x)
        if node is None:
            return
        if node.op is Bmm:
            yield Scores(node)
        elif node.op in (Mul, Div):
            yield from self.scaled(node)
        elif node.op is Add:
            yield from self.added(node)
        elif node.op is Where:
            yield from self.chosen(node)

    def scaled(self, node: Node) -> Iterator[Scores]:
        for inner, other in sides(node.ins, node.out):
            factor = self.number(other)
            if not factor or (node.op is Div and inner is not node.ins[0]):
                continue
            for found in self.scores(inner):
                if found.mask is None:
                    scale = found.scale * factor if node.op is Mul else found.scale / factor
                    yield replace(found, scale=scale)

    def added(self, node: Node) -> Iterator[Scores]:
        for inner, mask in sides(node.ins, node.out):
            if expands(mask, node.out) and not self.trains(mask):
                for found in self.scores(inner):
                    if found.mask is None:
                        yield replace(found, mask=mask)

    def chosen(self, node: Node) -> Iterator[Scores]:
        condition, *either = node.ins
        for inner, other in sides(tuple(either), node.out):
            value, inverse = self.number(other), inner is not either[0]
            if value is None or value > FINAL or not expands(condition, node.out):
                continue
            if value > -np.inf and not self.shows_some(condition, inverse):
                continue
            for found in self.scores(inner):
                if found.mask is None:
                    yield replace(found, mask=condition, instead=value, inverse=inverse)

    def shows_some(self, condition: Value, inverse: bool) -> bool:
        """Whether each query is known to see a key.

        Where it sees none, finite numbers in place of scores stop the gradient, and the same
        numbers added to them would not.
        """
        if condition.role is not Role.CONST:
            return False
        seen = (self.data[condition.name] != 0) ^ inverse
        return bool(seen.any(axis=-1).all())

    def number(self, value: Value) -> float | None:
        """A constant that is a single number."""
        if value.role is Role.CONST and value.type.dtype is DType.F32 and value.type.elements == 1:
            return float(self.data[value.name].reshape(()))
        return None

    def trains(self, mask: Value) -> bool:
        """Whether floats of a parameter have a part in it."""
        waiting = [mask]
        for value in waiting:
            node = self.makers.of.get(value)
            more = [v for v in (node.ins if node else ()) if v.type.dtype is DType.F32]
            waiting += [v for v in more if v not in waiting]
        return any(value.role is Role.PARAM for value in waiting)


def sides(ins: tuple[Value, ...], x: Value) -> Iterator[tuple[Value, Value]]:
    """Either operand that has the shape of the result, and the other one."""
    for inner, other in (ins, ins[::-1]):
        if inner.shape == x.shape:
            yield inner, other


def expands(mask: Value, x: Value) -> bool:
    """Whether the mask has the scores' keys, and may be repeated along all other axes."""
    return 1 <= mask.type.rank <= x.type.rank and mask.shape[-1] == x.shape[-1]


def fused(
    b: Builder, makers: Makers, node: Node, scores: Scores, shape: tuple[int, ...]
) -> tuple[Value, ...] | None:
    """The nodes in place of the second product; the scores have this shape."""
    a, product = scores.product.attrs, scores.product
    (q, k), v = product.ins, node.ins[1]
    lead = (*shape[:-2], 1)[:2]  # batch and heads; without heads, each sample is one
    *_, rows, e = node.out.shape
    width = q.type.elements // (lead[0] * lead[1] * rows)
    if max(width, e) > WIDEST:
        return None
    operands = [
        rows_of(b, makers, q, lead, a.ta),
        rows_of(b, makers, k, lead, not a.tb),
        rows_of(b, makers, v, lead, node.attrs.tb),
    ]
    if scores.mask is not None:
        operands.append(additive(b, scores, shape))
    y, *_ = b.emit_all(Attention, *operands, name=node.out.name, scale=scores.scale)
    y = b.emit(Transpose, y, perm=(0, 2, 1, 3)) if lead[1] > 1 else y
    return b.emit_all(Reshape, y, shape=node.out.shape)


def rows_of(b: Builder, makers: Makers, x: Value, lead: tuple[int, ...], transposed: bool) -> Value:
    """[batch, rows, heads, width] of a stack of matrices; what it was made of, if that is stored
    so."""

    def arranged(x: Array) -> Array:
        x = x.swapaxes(1, 2) if transposed else x
        return x.reshape(*lead, *x.shape[1:]).transpose(0, 2, 1, 3)

    shape = arranged(np.empty(x.shape, np.uint8)).shape
    for source, places in makers.sources(x):
        if source.type.elements == x.type.elements and in_order(arranged(places)):
            return source if source.shape == shape else b.emit(Reshape, source, shape=shape)
    if transposed:
        x = b.emit(Transpose, x, perm=(0, 2, 1))
    split = b.emit(Reshape, x, shape=(*lead, *x.shape[1:]))
    return b.emit(Transpose, split, perm=(0, 2, 1, 3))


def additive(b: Builder, scores: Scores, shape: tuple[int, ...]) -> Value:
    """The mask as something to add to scores of four axes."""
    mask = scores.mask
    assert mask is not None
    if scores.instead:
        some, others = np.float32(0), np.float32(scores.instead)
        some, others = (others, some) if scores.inverse else (some, others)
        if mask.role is Role.CONST:
            mask = b.const(np.where(b.data[mask.name], some, others), name="hidden")
        else:
            mask = b.emit(Where, mask, b.const(some), b.const(others))
    axes = (1,) * (len(shape) - mask.type.rank) + mask.shape
    axes = axes if len(axes) == 4 else (axes[0], 1, *axes[1:])
    return mask if mask.shape == axes else b.emit(Reshape, mask, shape=axes)
