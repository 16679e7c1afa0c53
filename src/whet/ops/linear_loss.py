"""A linear layer and the loss over its classes in one, so that the scores never exist whole.

A vocabulary has tens of thousands of classes: the scores of a sequence take more memory than
everything else that a step keeps. Rows without a label cost nothing here, and the gradient of x is
made in the forward pass, as attention is in blocks of keys: sum_c exp(x . w[c]) * w[c] is summed up
class by class, relative to the largest score so far.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ..ir import Array, Call, Node, Op, Type, Value, Workspace, f32
from . import _exact
from ._common import require
from .linear import Linear, matrix, rows
from .loss import ClassLoss, CrossEntropy, CrossEntropyDx, check_loss
from .stored import ReadsStored, StoredWeight, floats, require_stored

ROWS = 256  # at a time: with fewer, reading and arranging all weights for each block shows
CLASSES = 256  # at a time: as many as a product sums up before it adds them to memory

F = np.float32


class LinearCrossEntropy(Op):
    """loss = cross_entropy(linear(x, w, b), labels), and its gradients dx, dw, db as asked for

    The bias is optional. Gradients are those of the loss itself.
    """

    name = "linear_cross_entropy"
    reads_weights = True

    class Attrs(ClassLoss):
        bias: bool = False
        dx: bool = False
        dw: bool = False
        db: bool = False
        rows: int = 0  # at a time; 0 leaves it to `blocks`
        classes: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type, w: Type, *rest: Type) -> tuple[Type, ...]:
        require(len(rest) == 1 + a.bias, "operands do not match the attributes")
        y = Linear.infer(a, x, w, *rest[: a.bias])
        check_loss(y, rest[-1], None)
        require(a.bias or not a.db, "there is no bias for db")
        wanted = ((a.dx, x), (a.dw, w), (a.db, f32(w.shape[0])))
        return (f32(), *(t for asked, t in wanted if asked))

    @staticmethod
    def ref(a: Attrs, x: Array, w: Array, *rest: Array) -> tuple[Array, ...]:
        own = CrossEntropy.Attrs(ignore_index=a.ignore_index, mean=a.mean)
        counts, dx = rest[-1].ravel() != a.ignore_index, np.zeros_like(matrix(x))
        some, labels = matrix(x)[counts], rest[-1].ravel()[counts]
        scores = np.asarray(Linear.ref(a, some, w, *rest[: a.bias]))
        loss = CrossEntropy.ref(own, scores, labels)
        dy = CrossEntropyDx.ref(own, np.ones((), x.dtype), scores, labels)
        dx[counts] = dy @ w
        wanted = ((a.dx, dx.reshape(x.shape)), (a.dw, dy.T @ some), (a.db, dy.sum(axis=0)))
        return (loss, *(g for asked, g in wanted if asked))

    @staticmethod
    def exact(a: Attrs, x: Array, w: Array, *rest: Array) -> tuple[Array, ...]:
        b, labels = rest[0] if a.bias else None, rest[-1].ravel()
        most, classes = blocks(a, len(labels), len(w))
        counts, flat = np.flatnonzero(labels != a.ignore_index), matrix(x)
        divide = F(len(counts)) if a.mean else F(1)
        dx, dw, db = np.zeros_like(flat), np.zeros_like(w), np.zeros(len(w), F)
        terms: list[Array] = [np.zeros(0, F)]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for first in range(0, len(counts), most):
                at = counts[first : first + most]
                head = _Rows(flat[at], w, b, labels[at], classes)
                terms.append(head.losses(F(1) / divide))
                dx[at] = head.dx
                if a.dw or a.db:
                    dw, db = head.slopes()
            loss = _exact.compensated(np.concatenate(terms)) / divide
        wanted = ((a.dx, dx.reshape(x.shape)), (a.dw, dw), (a.db, db))
        return (loss, *(g for asked, g in wanted if asked))

    @staticmethod
    def call(node: Node) -> Call:
        (x, w, *rest), a = node.ins, node.attrs
        own = iter(node.outs[1:])
        slots = [next(own) if asked else None for asked in (a.dx, a.dw, a.db)]
        o, i = w.shape
        n = rows(x.shape)
        args = (node.out, *slots, x, w, rest[0] if a.bias else None, rest[-1], n, i, o)
        numbers = (a.ignore_index, int(a.mean), *blocks(a, n, o))
        needs = ("linear", "head_parts")
        work = Workspace(node.op.workspace(node))
        return Call(
            "whet_linear_cross_entropy_f32", (*args, *numbers, work), node.op.name, needs=needs
        )

    @staticmethod
    def workspace(node: Node) -> int:
        return head_floats(node.attrs, *(v.type for v in node.ins[:2]))

    @staticmethod
    def macs(node: Node) -> int:
        """Of all rows; those without a label cost nothing."""
        x, w = (v.type for v in node.ins[:2])
        return head_macs(node.attrs, x.elements * w.shape[0])

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((1, 0),) if node.attrs.dx else ()

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {len(node.ins) - 1: (node.ins[1].shape[0], node.attrs.ignore_index)}


class LinearCrossEntropyStored(ReadsStored):
    """linear_cross_entropy and its gradients dx, db as asked for, with w as it is stored"""

    name = "linear_cross_entropy_stored"
    instead = (LinearCrossEntropy,)

    class Attrs(LinearCrossEntropy.Attrs, StoredWeight):
        pass

    @staticmethod
    def fits(node: Node) -> bool:
        return not node.attrs.dw

    @staticmethod
    def more(node: Node) -> dict[str, object]:
        return asdict(node.attrs)

    @staticmethod
    def infer(a: Attrs, x: Type, data: Type, *rest: Type) -> tuple[Type, ...]:
        require(not a.dw, "a weight as it is stored has no gradient")
        require(len(rest) == a.arrays + a.bias, "operands do not match the attributes")
        require_stored(a, data, rest[0] if a.arrays > 1 else None)
        return LinearCrossEntropy.infer(a, x, weight(a), *rest[a.arrays - 1 :])

    @staticmethod
    def ref(a: Attrs, x: Array, data: Array, *rest: Array) -> tuple[Array, ...]:
        w = floats(a, data, *rest[: a.arrays - 1]).astype(x.dtype)
        return LinearCrossEntropy.ref(a, x, w, *rest[a.arrays - 1 :])

    @staticmethod
    def exact(a: Attrs, x: Array, data: Array, *rest: Array) -> tuple[Array, ...]:
        w = floats(a, data, *rest[: a.arrays - 1])
        return LinearCrossEntropy.exact(a, x, w, *rest[a.arrays - 1 :])

    @staticmethod
    def call(node: Node) -> Call:
        (x, data, *rest), a = node.ins, node.attrs
        table, more = rest[0] if a.arrays > 1 else None, rest[a.arrays - 1 :]
        own = iter(node.outs[1:])
        slots: list[Value | None] = [next(own) if asked else None for asked in (a.dx, a.db)]
        n = rows(x.shape)
        args = (node.out, *slots, x, data, table, more[0] if a.bias else None, more[-1], n,
                a.inputs, a.outputs)  # fmt: skip
        numbers = (a.ignore_index, int(a.mean), *blocks(a, n, a.outputs), a.form)
        needs = ("linear_cross_entropy", "linear", "head_parts", "stored")
        work = Workspace(node.op.workspace(node))
        kernel = "whet_linear_cross_entropy_stored_f32"
        return Call(kernel, (*args, *numbers, work), node.op.name, needs=needs)

    @staticmethod
    def workspace(node: Node) -> int:
        a, x = node.attrs, node.ins[0].type
        return head_floats(a, x, weight(a)) + row_floats(a, weight(a))

    @staticmethod
    def macs(node: Node) -> int:
        return head_macs(node.attrs, node.ins[0].type.elements * node.attrs.outputs)

    inplace = LinearCrossEntropy.inplace

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {len(node.ins) - 1: (node.attrs.outputs, node.attrs.ignore_index)}


def weight(a: StoredWeight) -> Type:
    """In floats."""
    return f32(a.outputs, a.inputs)


def blocks(a: LinearCrossEntropy.Attrs, n: int, o: int) -> tuple[int, int]:
    """Rows and classes at a time. Gradients of weights are made of all rows together."""
    return min(n, n if a.dw or a.db else a.rows or ROWS), min(o, a.classes or CLASSES)


def head_macs(a: LinearCrossEntropy.Attrs, scores: int) -> int:
    """If those of the scores are so many, which the gradients of weights are made of again."""
    return (1 + a.dx + a.dw + (a.dw or a.db)) * scores


def head_floats(a: LinearCrossEntropy.Attrs, x: Type, w: Type) -> int:
    """Of the workspace."""
    some, classes = blocks(a, rows(x.shape), w.shape[0])
    return some * (classes + w.shape[1] + 4)


def row_floats(a: LinearCrossEntropy.Attrs, w: Type) -> int:
    """Of the workspace for rows of a weight that is not stored in floats."""
    return blocks(a, 1, w.shape[0])[1] * w.shape[1]


class _Rows:
    """Rows of x with their labels, as kernels/ref/linear_cross_entropy.c goes through them."""

    def __init__(self, x: Array, w: Array, b: Array | None, labels: Array, classes: int) -> None:
        self.x, self.w, self.b, self.labels = x, w, b, labels
        self.parts = [slice(c, min(c + classes, len(w))) for c in range(0, len(w), classes)]
        self.top = np.full(len(x), -np.inf, F)
        self.sum = self.lost = np.zeros(len(x), F)
        self.own = np.zeros(len(x), F)
        self.dx: Array = np.zeros_like(x)
        for part in self.parts:
            self.add(part)

    def scores(self, part: slice) -> Array:
        b = None if self.b is None else self.b[part]
        w = self.w[part]
        return _exact.matmul_nt(_exact.start((len(self.x), len(w)), b, None), self.x, w)

    def labelled(self, part: slice) -> tuple[Array, Array]:
        """Rows whose label is one of these classes, and which of them."""
        at = np.flatnonzero((self.labels >= part.start) & (self.labels < part.stop))
        return at, self.labels[at] - part.start

    def add(self, part: slice) -> None:
        scores, here = self.scores(part), self.labelled(part)
        self.own[here[0]] = scores[here]
        scores[here] = -np.inf
        now = np.maximum(self.top, scores.max(axis=1))
        base = np.where(now > -np.inf, now, F(0))
        change = _exact.exp(self.top - base)
        e = _exact.exp(scores - base[:, None])
        term = _exact.line_sum(e) - self.lost * change
        new = self.sum * change + term
        self.lost = (new - self.sum * change) - term
        self.top, self.sum = now, new
        self.dx = _exact.matmul(self.dx * change[:, None], e, self.w[part])

    def losses(self, scale: Any) -> Array:
        top = np.maximum(self.own, self.top)
        change = _exact.exp(self.top - top)
        others = self.sum * change
        total = others + _exact.exp(self.own - top)
        self.share = scale / total
        self.slope = -(self.share * others)
        self.dx = (self.share * change)[:, None] * self.dx
        self.dx = self.dx + self.slope[:, None] * self.w[self.labels]
        losses: Array = _exact.log(total) - (self.own - top)
        self.top = top
        return losses

    def slopes(self) -> tuple[Array, Array]:
        """dw and db"""
        dw, db = np.zeros_like(self.w), np.zeros(len(self.w), F)
        for part in self.parts:
            dy = _exact.exp(self.scores(part) - self.top[:, None]) * self.share[:, None]
            here = self.labelled(part)
            dy[here] = self.slope[here[0]]
            dw[part] = _exact.matmul(dw[part], dy.T, self.x)
            db[part] = _exact.row_sum(dy)
        return dw, db
