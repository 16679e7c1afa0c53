"""Reductions over axes, and `expand`, their mirror image. Reduced axes stay with size 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Struct, Type, Value
from ._common import (
    Axis,
    around,
    broadcast_shapes,
    collapse,
    d,
    infer_along,
    over_first,
    padded,
    require,
    require_f32,
    same_axis,
    strides,
)
from ._exact import reduce_sum
from .shape import Reshape


class Axes(Attributes):
    axes: tuple[int, ...] = ()


def reduce_struct(full: tuple[int, ...], small: tuple[int, ...]) -> Struct:
    """Walk the large array row by row; `step` says how the small one moves along."""
    aligned = (1,) * (len(full) - len(small)) + small
    dims, (step,) = collapse(full, strides(aligned))
    fields = (("rank", len(dims)), ("dims", padded(dims, 1)), ("step", padded(step)))
    return Struct("whet_reduce_t", fields)


class Reduce(Op):
    """y = x reduced over axes by `reduction`, a function of NumPy, or by a `ref` of its own."""

    Attrs = Axes
    reduction: ClassVar[Callable[..., Any]]

    @staticmethod
    def row_axis(node: Node, operand: int, axis: int) -> int | None:
        return axis if axis not in node.attrs.axes else None

    @staticmethod
    def infer(a: Axes, x: Type) -> Type:
        require_f32(x)
        require(all(0 <= i < x.rank for i in a.axes), f"axes {a.axes} out of range for {x}")
        shape = tuple(1 if i in a.axes else n for i, n in enumerate(x.shape))
        return Type(x.dtype, shape)

    @classmethod
    def ref(cls, a: Axes, x: Array) -> Array:
        return np.asarray(cls.reduction(x, axis=a.axes, keepdims=True))

    @staticmethod
    def call(node: Node) -> Call:
        (x,) = node.ins
        y = node.out
        struct = reduce_struct(x.shape, y.shape)
        args = (y, x, y.type.elements, x.type.elements // y.type.elements, struct)
        return Call(f"whet_{node.op.name}_f32", args, node.op.name)


class Sum(Reduce):
    """y = sum of x over axes"""

    name = "sum"
    reduction = staticmethod(np.sum)

    @staticmethod
    def exact(a: Axes, x: Array) -> Array:
        return reduce_sum(x, a.axes)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,) = node.ins
        return (b.emit(Expand, douts[0], name=d(x), shape=x.shape),)


class Mean(Reduce):
    """y = mean of x over axes"""

    name = "mean"
    reduction = staticmethod(np.mean)

    @staticmethod
    def exact(a: Axes, x: Array) -> Array:
        y = reduce_sum(x, a.axes)
        return y / np.float32(x.size // y.size)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,) = node.ins
        scale = node.out.type.elements / x.type.elements
        return (b.emit(Expand, douts[0], name=d(x), shape=x.shape, scale=scale),)


class Norm(Reduce):
    """y = sqrt(sum of x^2 over axes); the gradient where y = 0 is 0"""

    name = "norm"

    @classmethod
    def ref(cls, a: Axes, x: Array) -> Array:
        return np.sqrt((x * x).sum(axis=a.axes, keepdims=True))

    @staticmethod
    def exact(a: Axes, x: Array) -> Array:
        return np.sqrt(reduce_sum(x * x, a.axes))

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,) = node.ins
        return (b.emit(NormDx, douts[0], x, node.out, name=d(x)),)


class NormDx(Op):
    """dx = y > 0 ? dy * x / y : 0"""

    name = "norm_dx"

    @staticmethod
    def infer(a: Attributes, dy: Type, x: Type, y: Type) -> Type:
        require_f32(dy, x, y)
        require(dy.shape == y.shape, "dy and y differ")
        require(broadcast_shapes(x.shape, y.shape) == x.shape, "y is not a reduction of x")
        return x

    @staticmethod
    def ref(a: Attributes, dy: Array, x: Array, y: Array) -> Array:
        return np.where(y > 0, dy * x / np.where(y > 0, y, 1), 0)

    @staticmethod
    def call(node: Node) -> Call:
        dy, x, y = node.ins
        struct = reduce_struct(x.shape, y.shape)
        return Call("whet_norm_dx_f32", (node.out, dy, x, y, struct), "norm")


class Expand(Op):
    """y = scale * x, repeated along axes of size 1 until it has the given shape"""

    name = "expand"
    row_axis = staticmethod(same_axis)

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()
        scale: float = 1.0

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require(x.dtype is DType.F32 or a.scale == 1, f"{x} has no fractions to scale by")
        require(broadcast_shapes(x.shape, a.shape) == a.shape, f"{x} does not expand to {a.shape}")
        return Type(x.dtype, a.shape)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.broadcast_to(x if a.scale == 1 else x * x.dtype.type(a.scale), a.shape)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,), scale = node.ins, node.attrs.scale
        dx = sum_to(b, douts[0], x)
        if scale != 1.0:
            dx = b.emit(Expand, dx, name=d(x), shape=x.shape, scale=scale)
        return (dx,)

    @staticmethod
    def call(node: Node) -> Call:
        struct = reduce_struct(node.out.shape, node.ins[0].shape)
        if node.out.type.dtype is not DType.F32:
            kernel = f"whet_gather_x{node.out.type.dtype.size * 8}"
            walk = Struct("whet_walk_t", struct.fields)
            return Call(kernel, (node.out, *node.ins, 0, walk), "gather")
        return Call("whet_expand_f32", (node.out, *node.ins, node.attrs.scale, struct), "expand")


class Cumsum(Op):
    """y[..., j, ...] = the sum of x[..., i, ...] over i <= j along the axis; i >= j if reversed"""

    name = "cumsum"

    class Attrs(Axis):
        reverse: bool = False

    infer = staticmethod(infer_along)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        if a.reverse:
            return np.flip(np.cumsum(np.flip(x, a.axis), axis=a.axis), a.axis)
        return np.cumsum(x, axis=a.axis)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        a = node.attrs
        dx = b.emit(Cumsum, douts[0], name=d(node.ins[0]), axis=a.axis, reverse=not a.reverse)
        return (dx,)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        args = (node.out, x, *around(x.shape, a.axis), int(a.reverse))
        return Call("whet_cumsum_f32", args, "cumsum")

    inplace = staticmethod(over_first)


def sum_to(b: Builder, grad: Value, like: Value) -> Value:
    """Undo broadcasting: sum `grad` down to the shape of `like`; `grad` itself if equal."""
    if grad.shape == like.shape:
        return grad
    aligned = (1,) * (grad.type.rank - like.type.rank) + like.shape
    axes = tuple(i for i, n in enumerate(aligned) if n == 1 and grad.shape[i] != 1)
    if axes:
        grad = b.emit(Sum, grad, name=d(like), axes=axes)
    if grad.shape != like.shape:
        grad = b.emit(Reshape, grad, name=d(like), shape=like.shape)
    return grad
