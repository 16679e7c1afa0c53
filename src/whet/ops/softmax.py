"""Softmax and its logarithm along one axis."""

from __future__ import annotations

import numpy as np

from ..ir import Arg, Array, Attributes, Builder, Call, Grads, Node, Op, Type
from . import _exact
from ._common import around, d, require, require_f32, require_same


class Axis(Attributes):
    axis: int = 0


def along(terms: Array, a: Axis) -> Array:
    """Their sum along the axis, as the kernels make it; the axis stays with size 1."""
    return np.expand_dims(_exact.line_sum(np.moveaxis(terms, a.axis, -1)), a.axis)


class Softmax(Op):
    """y = exp(x) / sum of exp(x) along the axis"""

    name = "softmax"
    Attrs = Axis

    @staticmethod
    def infer(a: Axis, x: Type) -> Type:
        require_f32(x)
        require(0 <= a.axis < x.rank, f"axis {a.axis} out of range for {x}")
        return x

    @staticmethod
    def ref(a: Axis, x: Array) -> Array:
        e = np.exp(x - x.max(axis=a.axis, keepdims=True))
        return e / e.sum(axis=a.axis, keepdims=True)

    @staticmethod
    def exact(a: Axis, x: Array) -> Array:
        e = _exact.exp(x - x.max(axis=a.axis, keepdims=True))
        return e * (np.float32(1) / along(e, a))

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        name, axis = d(node.ins[0]), node.attrs.axis
        return (b.emit(SoftmaxDx, douts[0], node.out, name=name, axis=axis),)

    @staticmethod
    def call(node: Node) -> Call:
        args: tuple[Arg, ...] = (node.out, *node.ins, *around(node.out.shape, node.attrs.axis))
        return Call(f"whet_{node.op.name}_f32", args, node.op.name.removesuffix("_dx"))

    @staticmethod
    def inplace(node: Node) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


class SoftmaxDx(Op):
    """dx = y * (dy - sum of dy * y along the axis)"""

    name = "softmax_dx"
    Attrs = Axis

    @staticmethod
    def infer(a: Axis, dy: Type, y: Type) -> Type:
        require_f32(dy, y)
        require_same(dy, y)
        return dy

    @staticmethod
    def ref(a: Axis, dy: Array, y: Array) -> Array:
        return y * (dy - (dy * y).sum(axis=a.axis, keepdims=True))

    @staticmethod
    def exact(a: Axis, dy: Array, y: Array) -> Array:
        return y * (dy - along(dy * y, a))

    call = staticmethod(Softmax.call)
    inplace = staticmethod(Softmax.inplace)


class LogSoftmax(Op):
    """y = x - log of the sum of exp(x) along the axis"""

    name = "log_softmax"
    Attrs = Axis
    infer = staticmethod(Softmax.infer)

    @staticmethod
    def ref(a: Axis, x: Array) -> Array:
        z = x - x.max(axis=a.axis, keepdims=True)
        return z - np.log(np.exp(z).sum(axis=a.axis, keepdims=True))

    @staticmethod
    def exact(a: Axis, x: Array) -> Array:
        z = x - x.max(axis=a.axis, keepdims=True)
        return z - _exact.log(along(_exact.exp(z), a))

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        name, axis = d(node.ins[0]), node.attrs.axis
        return (b.emit(LogSoftmaxDx, douts[0], node.out, name=name, axis=axis),)

    call = staticmethod(Softmax.call)
    inplace = staticmethod(Softmax.inplace)


class LogSoftmaxDx(Op):
    """dx = dy - exp(y) * sum of dy along the axis"""

    name = "log_softmax_dx"
    Attrs = Axis
    infer = staticmethod(SoftmaxDx.infer)

    @staticmethod
    def ref(a: Axis, dy: Array, y: Array) -> Array:
        return dy - np.exp(y) * dy.sum(axis=a.axis, keepdims=True)

    @staticmethod
    def exact(a: Axis, dy: Array, y: Array) -> Array:
        return dy - _exact.exp(y) * along(dy, a)

    call = staticmethod(Softmax.call)
    inplace = staticmethod(Softmax.inplace)
