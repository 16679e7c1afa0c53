"""Weight gradients that are spent as they are made: a few rows, then their update, and so on."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar

from ..ir import Array, Attributes, Call, Node, Op, Type, Workspace
from ._common import require, require_f32
from .conv import Conv2dDw, conv_struct
from .linear import LinearDw, rows
from .update import UpdateOp, kernel_of

BLOCK = 2048  # floats of gradient that exist at a time, or a sixteenth of it if that is more

Arrays = Array | tuple[Array, ...]


def gradient(rank: int) -> type[LinearDw] | type[Conv2dDw]:
    """The operator that computes the gradient of a weight of this rank."""
    return LinearDw if rank == 2 else Conv2dDw


class Block(Attributes):
    rows: int = 0  # of the gradient that are made at a time; 0 leaves it to `block_rows`


class FusedUpdate(Op):
    """What the fused updates share; `update` is the optimizer's operator.

    Operands: w, dy, x, then what the optimizer takes behind w and the gradient. The gradient is
    that of a convolution or, if w is a matrix, of a linear layer.
    """

    update: ClassVar[type[UpdateOp]]

    @classmethod
    def inner(cls, a: Attributes) -> Attributes:
        own = {f.name: getattr(a, f.name) for f in fields(cls.update.Attrs)}
        return cls.update.Attrs(**own)

    @classmethod
    def infer(
        cls, a: Conv2dDw.Attrs, w: Type, dy: Type, x: Type, *rest: Type
    ) -> Type | tuple[Type, ...]:
        require_f32(w, dy, x)
        g = gradient(w.rank).infer(a, dy, x)
        require(g == w, f"the gradient is {g}, not {w}")
        return cls.update.infer(cls.inner(a), w, g, *rest)

    @classmethod
    def ref(cls, a: Conv2dDw.Attrs, w: Array, dy: Array, x: Array, *rest: Array) -> Arrays:
        return cls.update.ref(cls.inner(a), w, gradient(w.ndim).ref(a, dy, x), *rest)

    @classmethod
    def exact(cls, a: Conv2dDw.Attrs, w: Array, dy: Array, x: Array, *rest: Array) -> Arrays:
        update = cls.update.exact or cls.update.ref
        return update(cls.inner(a), w, gradient(w.ndim).exact(a, dy, x), *rest)

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, FusedUpdate)
        (w, dy, x, *rest), a, update = node.ins, node.attrs, node.op.update
        kernel, x_type, dy_type = a.kernel, x.type, dy.type
        if w.type.rank == 2:
            kernel, x_type, dy_type = (1, 1), as_pixels(x.type), as_pixels(dy.type)
        struct = conv_struct(x_type, dy_type, kernel, a.groups, a)
        block = Workspace(node.op.workspace(node))
        results = (node.out, *update.slots(a, node.outs[1:]))
        operands = (w, dy, x, *update.slots(a, rest))
        args = (*results, *operands, struct, block_rows(node), *update.numbers(a), block)
        *_, file = kernel_of(update, kept := update.kept(a), ())
        return Call(*kernel_of(node.op, kept, args), needs=("conv2d", file))

    @staticmethod
    def workspace(node: Node) -> int:
        w = node.ins[0].type
        return block_rows(node) * (w.elements // w.shape[0])

    @staticmethod
    def macs(node: Node) -> int:
        dy = node.ins[1].type
        return node.ins[0].type.elements * (dy.elements // dy.shape[-1])

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        """Each result may replace what it is the next value of: w, then the moments."""
        return tuple((i, 0 if i == 0 else 2 + i) for i in range(len(node.outs)))


def block_rows(node: Node) -> int:
    """Rows of the gradient that are made at a time: few, unless more are asked for."""
    w = node.ins[0].type
    row = w.elements // w.shape[0]
    return node.attrs.rows or max(1, min(w.shape[0], max(BLOCK // row, w.shape[0] // 16)))


def as_pixels(t: Type) -> Type:
    """The rows of a linear layer as the pixels of an image one row high."""
    return Type(t.dtype, (1, 1, rows(t.shape), t.shape[-1]))
