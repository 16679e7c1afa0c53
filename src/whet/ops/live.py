"""Linear layers whose weight has elements that are zero for ever: the others, the live ones, are
stored one after the other, with a bit for each element of the weight.

For all other operators, `spread` makes the whole weight.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Attributes, Builder, Call, Grads, Node, Op, Type
from . import _exact
from ._common import d, packed, require, require_bits, require_f32, row_of_channels, unpack
from .linear import matrix, rows, sum_rows


def places(bits: Array, outputs: int, inputs: int) -> tuple[Array, Array]:
    """Output and input of every live element of a weight, in order."""
    o, i = np.nonzero(unpack(bits, 1, (outputs, inputs)))
    return o, i


def whole(v: Array, bits: Array, outputs: int, inputs: int) -> Array:
    y = np.zeros((outputs, inputs), v.dtype)
    y[places(bits, outputs, inputs)] = v
    return y


class Count(Attributes):
    count: int = 0  # of live elements


class LinearLive(Op):
    """y[r, o] = b[o] + sum of x[r, i] * v over the live elements w[o, i]; the bias is optional"""

    name = "linear_live"
    row_axis = staticmethod(row_of_channels)

    class Attrs(Attributes):
        outputs: int = 0

    @staticmethod
    def infer(a: Attrs, x: Type, v: Type, bits: Type, b: Type | None = None) -> Type:
        require_f32(x, v)
        require(x.rank >= 1, "needs x of rank >= 1")
        require_bits(bits, Type(v.dtype, (a.outputs, x.shape[-1])))
        require(b is None or b.shape == (a.outputs,), "the bias must have one entry per output")
        return Type(x.dtype, (*x.shape[:-1], a.outputs))

    @staticmethod
    def ref(a: Attrs, x: Array, v: Array, bits: Array, b: Array | None = None) -> Array:
        y = x @ whole(v, bits, a.outputs, x.shape[-1]).T
        return y if b is None else y + b

    @staticmethod
    def exact(a: Attrs, x: Array, v: Array, bits: Array, b: Array | None = None) -> Array:
        y = np.array(_exact.start((*x.shape[:-1], a.outputs), b, None))
        o, i = places(bits, a.outputs, x.shape[-1])
        np.add.at(matrix(y).T, o, matrix(x).T[i] * v[:, None])
        return y

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (x, v, bits, *bias) = douts, node.ins
        assert dy is not None
        dx = dv = None
        if wants[0]:
            dx = b.emit(LinearLiveDx, dy, v, bits, name=d(x), inputs=x.shape[-1])
        if wants[1]:
            dv = b.emit(LinearLiveDw, dy, x, bits, name=d(v), count=v.shape[0])
        return dx, dv, None, *(sum_rows(b, dy, u) if wants[3] else None for u in bias)

    @staticmethod
    def call(node: Node) -> Call:
        x, v, bits, *bias = node.ins
        sizes = (rows(x.shape), x.shape[-1], node.attrs.outputs)
        args = (node.out, x, v, bits, bias[0] if bias else None, *sizes)
        return Call("whet_linear_live_f32", args, "live")

    @staticmethod
    def macs(node: Node) -> int:
        return rows(node.ins[0].shape) * node.ins[1].type.elements


class LinearLiveDx(Op):
    """dx[r, i] = sum of dy[r, o] * v over the live elements w[o, i]"""

    name = "linear_live_dx"

    class Attrs(Attributes):
        inputs: int = 0

    @staticmethod
    def infer(a: Attrs, dy: Type, v: Type, bits: Type) -> Type:
        require_f32(dy, v)
        require_bits(bits, Type(v.dtype, (dy.shape[-1], a.inputs)))
        return Type(dy.dtype, (*dy.shape[:-1], a.inputs))

    @staticmethod
    def ref(a: Attrs, dy: Array, v: Array, bits: Array) -> Array:
        return dy @ whole(v, bits, dy.shape[-1], a.inputs)

    @staticmethod
    def exact(a: Attrs, dy: Array, v: Array, bits: Array) -> Array:
        dx = np.zeros((*dy.shape[:-1], a.inputs), np.float32)
        o, i = places(bits, dy.shape[-1], a.inputs)
        np.add.at(matrix(dx).T, i, matrix(dy).T[o] * v[:, None])
        return dx

    @staticmethod
    def call(node: Node) -> Call:
        dy, v, bits = node.ins
        sizes = (rows(dy.shape), node.attrs.inputs, dy.shape[-1])
        return Call("whet_linear_live_dx_f32", (node.out, dy, v, bits, *sizes), "live")

    @staticmethod
    def macs(node: Node) -> int:
        return rows(node.ins[0].shape) * node.ins[1].type.elements


class LinearLiveDw(Op):
    """dv = sum_r dy[r, o] * x[r, i] for each of the live elements w[o, i]"""

    name = "linear_live_dw"
    Attrs = Count

    @staticmethod
    def infer(a: Count, dy: Type, x: Type, bits: Type) -> Type:
        require_f32(dy, x)
        require(dy.shape[:-1] == x.shape[:-1], f"{dy} does not meet {x}")
        require(bits == packed(dy.shape[-1] * x.shape[-1], 1), f"{bits} does not fit {dy} and {x}")
        require(0 < a.count <= dy.shape[-1] * x.shape[-1], f"there are no {a.count} weights")
        return Type(dy.dtype, (a.count,))

    @staticmethod
    def ref(a: Count, dy: Array, x: Array, bits: Array) -> Array:
        found: Array = (matrix(dy).T @ matrix(x))[places(bits, dy.shape[-1], x.shape[-1])]
        return found

    @staticmethod
    def exact(a: Count, dy: Array, x: Array, bits: Array) -> Array:
        o, i = places(bits, dy.shape[-1], x.shape[-1])
        dv = np.zeros(a.count, np.float32)
        for left, right in zip(matrix(dy), matrix(x), strict=True):
            dv += left[o] * right[i]
        return dv

    @staticmethod
    def call(node: Node) -> Call:
        dy, x, bits = node.ins
        sizes = (rows(dy.shape), x.shape[-1], dy.shape[-1])
        return Call("whet_linear_live_dw_f32", (node.out, dy, x, bits, *sizes), "live")

    @staticmethod
    def macs(node: Node) -> int:
        return rows(node.ins[0].shape) * node.out.type.elements
