"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Array, Attributes, Builder, Call, Grads, Layer, Node, Op, Type, Value
from . import _exact
from ._common import d, require, require_f32, row_of_channels
from .reduce import Sum
from .shape import Reshape


def rows(shape: tuple[int, ...]) -> int:
    return math.prod(shape[:-1])


def matrix(x: Array) -> Array:
    """Its rows, whatever they are arranged in."""
    return x.reshape(-1, x.shape[-1])


class Linear(Op):
    """y[r, o] = b[o] + sum_i x[r, i] * w[o, i]; the bias is optional"""

    name = "linear"
    layer = Layer(inputs=-1, outputs=0)
    row_axis = staticmethod(row_of_channels)

    @staticmethod
    def infer(a: Attributes, x: Type, w: Type, b: Type | None = None) -> Type:
        require_f32(x, w)
        require(w.rank == 2 and x.rank >= 1, "needs x of rank >= 1 and w[o,i]")
        require(x.shape[-1] == w.shape[1], f"{x.shape[-1]} features meet {w.shape[1]} weights")
        require(b is None or b.shape == (w.shape[0],), "the bias must have one entry per output")
        return Type(x.dtype, (*x.shape[:-1], w.shape[0]))

    @staticmethod
    def ref(a: Attributes, x: Array, w: Array, b: Array | None = None) -> Array:
        y = x @ w.T
        return y if b is None else y + b

    @staticmethod
    def exact(
        a: Attributes, x: Array, w: Array, b: Array | None = None, add: Array | None = None
    ) -> Array:
        return _exact.matmul_nt(_exact.start((*x.shape[:-1], len(w)), b, add), x, w)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (x, w, *bias) = douts, node.ins
        assert dy is not None
        dx = b.emit(LinearDx, dy, w, name=d(x)) if wants[0] else None
        dw = b.emit(LinearDw, dy, x, name=d(w)) if wants[1] else None
        return dx, dw, *(sum_rows(b, dy, v) if wants[2] else None for v in bias)

    @staticmethod
    def call(node: Node) -> Call:
        x, w, *bias = node.ins
        o, i = w.shape
        args = (node.out, x, w, bias[0] if bias else None, rows(x.shape), i, o)
        return Call("whet_linear_f32", args, "linear")

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * node.ins[1].shape[1]

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        return torch.nn.functional.linear(*ins)


def sum_rows(b: Builder, dy: Value, bias: Value) -> Value:
    """The gradient of a bias along the last axis."""
    total = b.emit(Sum, dy, axes=tuple(range(dy.type.rank - 1)), name=d(bias))
    return b.emit(Reshape, total, shape=bias.shape, name=d(bias))


class LinearDx(Op):
    """dx[r, i] = sum_o dy[r, o] * w[o, i]"""

    name = "linear_dx"
    reads_weights = True

    @staticmethod
    def infer(a: Attributes, dy: Type, w: Type) -> Type:
        require(dy.shape[-1] == w.shape[0], f"{dy} does not meet {w}")
        return Type(dy.dtype, (*dy.shape[:-1], w.shape[1]))

    @staticmethod
    def ref(a: Attributes, dy: Array, w: Array) -> Array:
        return dy @ w

    @staticmethod
    def exact(a: Attributes, dy: Array, w: Array) -> Array:
        return _exact.matmul(np.zeros((*dy.shape[:-1], w.shape[1]), np.float32), dy, w)

    @staticmethod
    def call(node: Node) -> Call:
        dy, w = node.ins
        o, i = w.shape
        return Call("whet_linear_dx_f32", (node.out, dy, w, rows(dy.shape), i, o), "linear")

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * node.ins[1].shape[0]


class LinearDw(Op):
    """dw[o, i] = sum_r dy[r, o] * x[r, i]"""

    name = "linear_dw"

    @staticmethod
    def infer(a: Attributes, dy: Type, x: Type) -> Type:
        require(dy.shape[:-1] == x.shape[:-1], f"{dy} does not meet {x}")
        return Type(dy.dtype, (dy.shape[-1], x.shape[-1]))

    @staticmethod
    def ref(a: Attributes, dy: Array, x: Array) -> Array:
        return matrix(dy).T @ matrix(x)

    @staticmethod
    def exact(a: Attributes, dy: Array, x: Array) -> Array:
        dw = np.zeros((dy.shape[-1], x.shape[-1]), np.float32)
        return _exact.matmul(dw, matrix(dy).T, matrix(x))

    @staticmethod
    def call(node: Node) -> Call:
        dy, x = node.ins
        o, i = node.out.shape
        return Call("whet_linear_dw_f32", (node.out, dy, x, rows(dy.shape), i, o), "linear")

    @staticmethod
    def macs(node: Node) -> int:
        return node.out.type.elements * rows(node.ins[0].shape)


class Bmm(Op):
    """y[n] = op(a[n]) @ op(b[n]), where op transposes the matrix if asked to"""

    name = "bmm"

    class Attrs(Attributes):
        ta: bool = False
        tb: bool = False

    @staticmethod
    def infer(t: Attrs, a: Type, b: Type) -> Type:
        require_f32(a, b)
        require(a.rank == b.rank == 3 and a.shape[0] == b.shape[0], "needs two stacks of matrices")
        m, k = a.shape[1:] if not t.ta else a.shape[:0:-1]
        k2, n = b.shape[1:] if not t.tb else b.shape[:0:-1]
        require(k == k2, f"inner sizes {k} and {k2} differ")
        return Type(a.dtype, (a.shape[0], m, n))

    @staticmethod
    def ref(t: Attrs, a: Array, b: Array) -> Array:
        left = a.swapaxes(1, 2) if t.ta else a
        right = b.swapaxes(1, 2) if t.tb else b
        return np.matmul(left, right)

    @staticmethod
    def exact(t: Attrs, a: Array, b: Array) -> Array:
        return np.stack([_product(t, u, v) for u, v in zip(a, b, strict=True)])

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), (u, v), t = douts, node.ins, node.attrs
        assert dy is not None
        du = dv = None
        if wants[0]:  # y = u v: du = dy v';  y = u' v: du = v dy'
            if t.ta:
                du = b.emit(Bmm, v, dy, name=d(u), ta=t.tb, tb=True)
            else:
                du = b.emit(Bmm, dy, v, name=d(u), ta=False, tb=not t.tb)
        if wants[1]:  # y = u v: dv = u' dy;  y = u v': dv = dy' u
            if t.tb:
                dv = b.emit(Bmm, dy, u, name=d(v), ta=True, tb=t.ta)
            else:
                dv = b.emit(Bmm, u, dy, name=d(v), ta=not t.ta, tb=False)
        return du, dv

    @staticmethod
    def call(node: Node) -> Call:
        (a, b), t = node.ins, node.attrs
        stacks, m, n = node.out.shape
        k = a.shape[1] if t.ta else a.shape[2]
        args = (node.out, a, b, stacks, m, k, n, int(t.ta), int(t.tb))
        return Call("whet_bmm_f32", args, "bmm")

    @staticmethod
    def macs(node: Node) -> int:
        a, ta = node.ins[0], node.attrs.ta
        return node.out.type.elements * (a.shape[1] if ta else a.shape[2])


def _product(t: Bmm.Attrs, a: Array, b: Array) -> Array:
    """One matrix of the stack, as the kernel makes it."""
    left, right = a.T if t.ta else a, b.T if t.tb else b
    y = np.zeros((len(left), right.shape[1]), np.float32)
    if t.ta and t.tb:
        return y + _exact.compensated(left.T[:, :, None] * right[:, None])
    return _exact.matmul_nt(y, a, b) if t.tb else _exact.matmul(y, left, right)
