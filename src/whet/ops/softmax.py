"""Softmax and its logarithm along one axis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir import Arg, Array, Builder, Call, Grads, Node, Op
from . import _exact
from ._common import (
    Axis,
    around,
    d,
    infer_along,
    infer_pair,
    over_first,
)


def along(terms: Array, a: Axis) -> Array:
    """Their sum along the axis, as the kernels make it; the axis stays with size 1."""
    return np.expand_dims(_exact.line_sum(np.moveaxis(terms, a.axis, -1)), a.axis)


class AlongAxis(Op):
    Attrs = Axis

    @staticmethod
    def call(node: Node) -> Call:
        args: tuple[Arg, ...] = (node.out, *node.ins, *around(node.out.shape, node.attrs.axis))
        return Call(f"whet_{node.op.name}_f32", args, node.op.name.removesuffix("_dx"))

    inplace = staticmethod(over_first)


class SoftmaxDx(AlongAxis):
    """dx = y * (dy - sum of dy * y along the axis)"""

    name = "softmax_dx"

    infer = staticmethod(infer_pair)

    @staticmethod
    def ref(a: Axis, dy: Array, y: Array) -> Array:
        return y * (dy - (dy * y).sum(axis=a.axis, keepdims=True))

    @staticmethod
    def exact(a: Axis, dy: Array, y: Array) -> Array:
        return y * (dy - along(dy * y, a))


class LogSoftmaxDx(SoftmaxDx):
    """dx = dy - exp(y) * sum of dy along the axis"""

    name = "log_softmax_dx"

    @staticmethod
    def ref(a: Axis, dy: Array, y: Array) -> Array:
        return dy - np.exp(y) * dy.sum(axis=a.axis, keepdims=True)

    @staticmethod
    def exact(a: Axis, dy: Array, y: Array) -> Array:
        return dy - _exact.exp(y) * along(dy, a)


class Softmax(AlongAxis):
    """y = exp(x) / sum of exp(x) along the axis"""

    name = "softmax"
    dx: ClassVar[type[Op]] = SoftmaxDx  # the op of its gradient

    infer = staticmethod(infer_along)

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
        assert douts[0] is not None and issubclass(node.op, Softmax)
        name, axis = d(node.ins[0]), node.attrs.axis
        return (b.emit(node.op.dx, douts[0], node.out, name=name, axis=axis),)


class LogSoftmax(Softmax):
    """y = x - log of the sum of exp(x) along the axis"""

    name = "log_softmax"
    dx = LogSoftmaxDx

    @staticmethod
    def ref(a: Axis, x: Array) -> Array:
        z = x - x.max(axis=a.axis, keepdims=True)
        return z - np.log(np.exp(z).sum(axis=a.axis, keepdims=True))

    @staticmethod
    def exact(a: Axis, x: Array) -> Array:
        z = x - x.max(axis=a.axis, keepdims=True)
        return z - _exact.log(along(_exact.exp(z), a))
