"""Gradients of live weights that are spent as they are made: a block of them, then its update."""

from __future__ import annotations

from typing import ClassVar

from ..ir import Array, Attributes, Call, DType, Node, Op, Type, Workspace
from ._common import require
from .fused_update import BLOCK, Arrays
from .linear import rows
from .live import Count, LinearLiveDw
from .update import UpdateOp


class LiveUpdate(Op):
    """What the updates of live weights share; `update` is the optimizer's operator.

    Operands: v, dy, x, bits, then what the optimizer takes behind v and the gradient.
    """

    update: ClassVar[type[UpdateOp]]

    @classmethod
    def infer(
        cls, a: Attributes, v: Type, dy: Type, x: Type, bits: Type, *rest: Type
    ) -> Type | tuple[Type, ...]:
        require(cls.update.kept(a) is DType.F32, "live weights have moments in f32")
        return cls.update.infer(a, v, LinearLiveDw.infer(counted(v), dy, x, bits), *rest)

    @classmethod
    def ref(cls, a: Attributes, v: Array, dy: Array, x: Array, bits: Array, *rest: Array) -> Arrays:
        return cls.update.ref(a, v, LinearLiveDw.ref(counted(v), dy, x, bits), *rest)

    @classmethod
    def exact(
        cls, a: Attributes, v: Array, dy: Array, x: Array, bits: Array, *rest: Array
    ) -> Arrays:
        update = cls.update.exact or cls.update.ref
        return update(a, v, LinearLiveDw.exact(counted(v), dy, x, bits), *rest)

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, LiveUpdate)
        (v, dy, x, bits, *rest), a, update = node.ins, node.attrs, node.op.update
        size = node.op.workspace(node)
        results = (node.out, *update.slots(a, node.outs[1:]))
        sizes = (rows(dy.shape), x.shape[-1], dy.shape[-1], size)
        args = (*results, v, dy, x, bits, *update.slots(a, rest), *sizes, *update.numbers(a))
        return Call(
            f"whet_{node.op.name}_f32", (*args, Workspace(size)), node.op.name, needs=(update.name,)
        )

    @staticmethod
    def workspace(node: Node) -> int:
        count = node.ins[0].type.elements
        return min(count, max(BLOCK, count // 16))

    @staticmethod
    def macs(node: Node) -> int:
        return node.ins[0].type.elements * rows(node.ins[1].shape)

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        """Each result may replace what it is the next value of: v, then the moments."""
        return tuple((i, 0 if i == 0 else 3 + i) for i in range(len(node.outs)))


def counted(v: Type | Array) -> Count:
    return Count(count=v.shape[0])
