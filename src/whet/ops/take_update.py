"""Gradients of embeddings that are spent as they are made: some rows, then their update.

Nearly all rows are zero, but their moments shrink and their weights decay all the same.
"""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar

from ..ir import Array, Attributes, Call, Node, Op, Type, Workspace
from ._common import require
from .fused_update import BLOCK, Arrays
from .shape import TakeDx
from .update import UpdateOp, kernel_of

MOST = 1 << 15  # floats of gradient that exist at a time: few enough to stay in a cache


class TakeUpdate(Op):
    """What the updates of embeddings share; `update` is the optimizer's operator.

    Operands: w, dy, index, then what the optimizer takes behind w and the gradient.
    """

    update: ClassVar[type[UpdateOp]]

    @classmethod
    def inner(cls, a: Attributes) -> Attributes:
        own = {f.name: getattr(a, f.name) for f in fields(cls.update.Attrs)}
        return cls.update.Attrs(**own)

    @classmethod
    def infer(
        cls, a: TakeDx.Attrs, w: Type, dy: Type, index: Type, *rest: Type
    ) -> Type | tuple[Type, ...]:
        require(a.axis == 0 and w.rank == 2, "takes rows of a matrix")
        g = TakeDx.infer(taken(a), dy, index)
        require(g == w, f"the gradient is {g}, not {w}")
        return cls.update.infer(cls.inner(a), w, g, *rest)

    @classmethod
    def ref(cls, a: TakeDx.Attrs, w: Array, dy: Array, index: Array, *rest: Array) -> Arrays:
        return cls.update.ref(cls.inner(a), w, TakeDx.ref(taken(a), dy, index), *rest)

    @classmethod
    def exact(cls, a: TakeDx.Attrs, w: Array, dy: Array, index: Array, *rest: Array) -> Arrays:
        update = cls.update.exact or cls.update.ref
        return update(cls.inner(a), w, TakeDx.ref(taken(a), dy, index), *rest)

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, TakeUpdate)
        (w, dy, index, *rest), a, update = node.ins, node.attrs, node.op.update
        results = (node.out, *update.slots(a, node.outs[1:]))
        operands = (w, dy, index, *update.slots(a, rest))
        sizes = (*w.shape, index.type.elements, a.skip, rows_at_a_time(node))
        args = (*results, *operands, *sizes, *update.numbers(a), Workspace(node.op.workspace(node)))
        *_, file = kernel_of(update, kept := update.kept(a), ())
        return Call(*kernel_of(node.op, kept, args), needs=(file,))

    @staticmethod
    def workspace(node: Node) -> int:
        return rows_at_a_time(node) * node.ins[0].shape[1]

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        """Each result may replace what it is the next value of: w, then the moments."""
        return tuple((i, 0 if i == 0 else 2 + i) for i in range(len(node.outs)))


def taken(a: TakeDx.Attrs) -> TakeDx.Attrs:
    return TakeDx.Attrs(**{f.name: getattr(a, f.name) for f in fields(TakeDx.Attrs)})


def rows_at_a_time(node: Node) -> int:
    """A sixteenth of them, but no less than a block and no more than a cache holds."""
    n, width = node.ins[0].shape
    return max(1, min(n, max(BLOCK // width, min(n // 16, MOST // width))))
