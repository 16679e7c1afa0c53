"""Operators that move elements and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Array, Attributes, Builder, Call, DType, Grads, Node, Op, Struct, Type, Value
from ._common import (
    Axis,
    around,
    collapse,
    d,
    infer_as_is,
    other_axis,
    padded,
    require,
    require_axis,
    require_dtype,
    same_axis,
    strides,
)

MOVED = (DType.F32, DType.I32, DType.I8)  # by the operators that need to know what 0 is


class Reshape(Op):
    """The same bytes under another shape; costs nothing"""

    name = "reshape"
    moves = True
    view = True

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require(math.prod(a.shape) == x.elements, f"{x} does not reshape to {a.shape}")
        return Type(x.dtype, a.shape)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return x.reshape(a.shape)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,) = node.ins
        return (b.emit(Reshape, douts[0], name=d(x), shape=x.shape),)

    @staticmethod
    def call(node: Node) -> None:
        return None

    @staticmethod
    def straight_through(torch: Any, node: Node, ins: Sequence[Any], outs: Sequence[Array]) -> Any:
        return ins[0].reshape(node.attrs.shape)


class Transpose(Op):
    """y[i_perm[0], i_perm[1], ...] = x[i_0, i_1, ...]"""

    name = "transpose"
    moves = True

    class Attrs(Attributes):
        perm: tuple[int, ...] = ()

    @staticmethod
    def row_axis(node: Node, operand: int, axis: int) -> int | None:
        return int(node.attrs.perm.index(axis))

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require(sorted(a.perm) == list(range(x.rank)), f"{a.perm} is not an order of {x}'s axes")
        return Type(x.dtype, tuple(x.shape[i] for i in a.perm))

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return x.transpose(a.perm)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        inverse = tuple(int(i) for i in np.argsort(node.attrs.perm))
        return (b.emit(Transpose, douts[0], name=d(node.ins[0]), perm=inverse),)

    @staticmethod
    def call(node: Node) -> Call:
        (x,) = node.ins
        steps = [strides(x.shape)[i] for i in node.attrs.perm]
        dims, (step,) = collapse(node.out.shape, steps)
        fields = (("rank", len(dims)), ("dims", padded(dims, 1)), ("step", padded(step)))
        size = node.out.type.dtype.size * 8
        return Call(
            f"whet_gather_x{size}", (node.out, x, 0, Struct("whet_walk_t", fields)), "gather"
        )


class Slice(Op):
    """y[..., i, ...] = x[..., start + step * i, ...] along one axis"""

    name = "slice"
    moves = True
    row_axis = staticmethod(other_axis)

    class Attrs(Axis):
        start: int = 0
        stop: int = 0
        step: int = 1

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require_axis(a, x)
        fits = 0 <= a.start <= a.stop <= x.shape[a.axis] and a.step > 0
        require(fits, f"{a.start}:{a.stop}:{a.step} is not inside axis {a.axis} of {x}")
        n = len(range(a.start, a.stop, a.step))
        require(n > 0, "the slice is empty")
        return Type(x.dtype, (*x.shape[: a.axis], n, *x.shape[a.axis + 1 :]))

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return x[(slice(None),) * a.axis + (slice(a.start, a.stop, a.step),)]

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,), a = node.ins, node.attrs
        size = x.shape[a.axis]
        return (
            b.emit(
                SliceDx, douts[0], name=d(x), axis=a.axis, start=a.start, step=a.step, size=size
            ),
        )

    @staticmethod
    def call(node: Node) -> Call:
        (x,), a = node.ins, node.attrs
        steps = strides(x.shape)
        start = a.start * math.prod(x.shape[a.axis + 1 :])
        steps[a.axis] *= a.step
        dims, (step,) = collapse(node.out.shape, steps)
        fields = (("rank", len(dims)), ("dims", padded(dims, 1)), ("step", padded(step)))
        size = node.out.type.dtype.size * 8
        args = (node.out, x, start, Struct("whet_walk_t", fields))
        return Call(f"whet_gather_x{size}", args, "gather")


class SliceDx(Op):
    """dx = 0, except dx[..., start + step * i, ...] = dy[..., i, ...]"""

    name = "slice_dx"

    class Attrs(Axis):
        start: int = 0
        step: int = 1
        size: int = 0

    @staticmethod
    def infer(a: Attrs, dy: Type) -> Type:
        require_dtype(dy, *MOVED)
        last = a.start + a.step * (dy.shape[a.axis] - 1)
        require(last < a.size, f"{dy} does not fit into {a.size} along axis {a.axis}")
        return Type(dy.dtype, (*dy.shape[: a.axis], a.size, *dy.shape[a.axis + 1 :]))

    @staticmethod
    def ref(a: Attrs, dy: Array) -> Array:
        shape = (*dy.shape[: a.axis], a.size, *dy.shape[a.axis + 1 :])
        dx = np.zeros(shape, dy.dtype)
        n = dy.shape[a.axis]
        dx[(slice(None),) * a.axis + (slice(a.start, a.start + a.step * n, a.step),)] = dy
        return dx

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (dy,), a = node.ins, node.attrs
        stop = a.start + a.step * (dy.shape[a.axis] - 1) + 1
        attrs = dict(axis=a.axis, start=a.start, stop=stop, step=a.step)
        return (b.emit(Slice, douts[0], name=d(dy), **attrs),)

    @staticmethod
    def call(node: Node) -> Call:
        (dy,), a = node.ins, node.attrs
        outer, n, inner = around(dy.shape, a.axis)
        args = (node.out, dy, outer, n, inner, a.size, a.start, a.step)
        return Call(f"whet_slice_dx_{dy.type.dtype.label}", args, "slice_dx")


class Concat(Op):
    """y = the operands one after the other along an axis"""

    name = "concat"
    also_int8 = True
    Attrs = Axis
    row_axis = staticmethod(other_axis)

    @staticmethod
    def infer(a: Axis, *xs: Type) -> Type:
        require(len(xs) > 0, "nothing to concatenate")
        for x in xs:
            rest = (*x.shape[: a.axis], *x.shape[a.axis + 1 :])
            first = (*xs[0].shape[: a.axis], *xs[0].shape[a.axis + 1 :])
            require(rest == first and x.dtype is xs[0].dtype, f"{xs[0]} and {x} do not fit")
        n = sum(x.shape[a.axis] for x in xs)
        return Type(xs[0].dtype, (*xs[0].shape[: a.axis], n, *xs[0].shape[a.axis + 1 :]))

    @staticmethod
    def ref(a: Axis, *xs: Array) -> Array:
        return np.concatenate(xs, axis=a.axis)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (dy,), axis, start = douts, node.attrs.axis, 0
        assert dy is not None
        grads: list[Value | None] = []
        for x, want in zip(node.ins, wants, strict=True):
            stop = start + x.shape[axis]
            grad = b.emit(Slice, dy, name=d(x), axis=axis, start=start, stop=stop) if want else None
            grads.append(grad)
            start = stop
        return tuple(grads)

    @staticmethod
    def call(node: Node) -> Call:
        size = node.out.type.dtype.size
        rows, _, inner = around(node.out.shape, node.attrs.axis)
        widths = tuple(x.shape[node.attrs.axis] * inner * size for x in node.ins)
        return Call("whet_concat", (node.out, node.ins, widths, len(widths), rows), "concat")


class Pad(Op):
    """y = x inside a border of a constant value"""

    name = "pad"
    also_int8 = True

    class Attrs(Attributes):
        low: tuple[int, ...] = ()
        high: tuple[int, ...] = ()
        value: float = 0.0

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require(len(a.low) == len(a.high) == x.rank, f"needs {x.rank} widths on either side")
        require(min((*a.low, *a.high)) >= 0, "widths must not be negative")
        shape = tuple(lo + n + hi for lo, n, hi in zip(a.low, x.shape, a.high, strict=True))
        require_dtype(x, *MOVED)
        fits = x.dtype is DType.F32 or a.value == int(a.value)
        require(fits, f"{a.value} is not a value of {x}")
        return Type(x.dtype, shape)

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.pad(x, list(zip(a.low, a.high, strict=True)), constant_values=a.value)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        (x,), dx = node.ins, douts[0]
        assert dx is not None
        for axis, (low, n) in enumerate(zip(node.attrs.low, x.shape, strict=True)):
            if dx.shape[axis] != n:
                dx = b.emit(Slice, dx, name=d(x), axis=axis, start=low, stop=low + n)
        return (dx,)

    @staticmethod
    def call(node: Node) -> Call:
        (x,), y = node.ins, node.out
        steps = [math.prod(y.shape[i + 1 :]) for i in range(y.type.rank)]
        start = sum(lo * s for lo, s in zip(node.attrs.low, steps, strict=True))
        dims, (step,) = collapse(x.shape, steps)
        fields = (("rank", len(dims)), ("dims", padded(dims, 1)), ("step", padded(step)))
        struct = Struct("whet_walk_t", fields)
        value = node.attrs.value if x.type.dtype is DType.F32 else int(node.attrs.value)
        args = (y, x, y.type.elements, start, value, struct)
        return Call(f"whet_pad_{x.type.dtype.label}", args, "pad")


class Take(Op):
    """y[..., j, ...] = x[..., index[j], ...] along one axis; an embedding is a take along axis 0"""

    name = "take"
    moves = True

    class Attrs(Axis):
        skip: int = -1  # rows of this index get no gradient (an embedding's padding)

    @staticmethod
    def row_axis(node: Node, operand: int, axis: int) -> int | None:
        own = node.attrs.axis
        if operand == 1:
            return int(own + axis)
        return None if axis == own else axis + (axis > own) * (node.ins[1].type.rank - 1)

    @staticmethod
    def infer(a: Attrs, x: Type, index: Type) -> Type:
        require(index.dtype is DType.I32, f"the index must be i32, not {index}")
        require_dtype(x, *MOVED)
        return Type(x.dtype, (*x.shape[: a.axis], *index.shape, *x.shape[a.axis + 1 :]))

    @staticmethod
    def ref(a: Attrs, x: Array, index: Array) -> Array:
        return np.take(x, index, axis=a.axis)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        x, index = node.ins
        attrs = dict(axis=node.attrs.axis, skip=node.attrs.skip, size=x.shape[node.attrs.axis])
        return b.emit(TakeDx, douts[0], index, name=d(x), **attrs), None

    @staticmethod
    def call(node: Node) -> Call:
        x, index = node.ins
        outer, n, inner = around(x.shape, node.attrs.axis)
        args = (node.out, x, index, outer, n, inner, index.type.elements)
        return Call(f"whet_take_{x.type.dtype.label}", args, "take")

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {1: (node.ins[0].shape[node.attrs.axis], 0)}


class TakeDx(Op):
    """dx = 0, then dx[..., index[j], ...] += dy[..., j, ...] for every j"""

    name = "take_dx"

    class Attrs(Take.Attrs):
        size: int = 0

    @staticmethod
    def infer(a: Attrs, dy: Type, index: Type) -> Type:
        require_dtype(dy, DType.F32, DType.I32)
        fits = dy.shape[a.axis : a.axis + index.rank] == index.shape
        require(
            fits and index.dtype is DType.I32, f"{index} is not an index of {dy} at axis {a.axis}"
        )
        rest = dy.shape[a.axis + index.rank :]
        return Type(dy.dtype, (*dy.shape[: a.axis], a.size, *rest))

    @staticmethod
    def ref(a: Attrs, dy: Array, index: Array) -> Array:
        outer = math.prod(dy.shape[: a.axis])
        rest = dy.shape[a.axis + index.ndim :]
        rows = dy.reshape(outer, index.size, math.prod(rest))
        dx = np.zeros((outer, a.size, rows.shape[2]), dy.dtype)
        keep = index.ravel() != a.skip
        for row in range(outer):
            np.add.at(dx[row], index.ravel()[keep], rows[row, keep])
        return dx.reshape(*dy.shape[: a.axis], a.size, *rest)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None and node.attrs.skip < 0
        dy, index = node.ins
        return b.emit(Take, douts[0], index, name=d(dy), axis=node.attrs.axis), None

    @staticmethod
    def call(node: Node) -> Call:
        dy, index = node.ins
        outer, n, inner = around(node.out.shape, node.attrs.axis)
        args = (node.out, dy, index, outer, n, inner, index.type.elements, node.attrs.skip)
        return Call(f"whet_take_dx_{dy.type.dtype.label}", args, "take")


class TakeAlong(Op):
    """y[..., j, ...] = x[..., index[..., j, ...], ...]: every place has an index of its own"""

    name = "take_along"
    Attrs = Axis

    @staticmethod
    def infer(a: Axis, x: Type, index: Type) -> Type:
        require(x.dtype is DType.F32 and index.dtype is DType.I32, f"takes f32 by i32, not {index}")
        fits = index.rank == x.rank and all(
            n == m for i, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if i != a.axis
        )
        require(fits, f"{index} differs from {x} along another axis than {a.axis}")
        return Type(x.dtype, index.shape)

    @staticmethod
    def ref(a: Axis, x: Array, index: Array) -> Array:
        return np.take_along_axis(x, index.astype(np.int64), axis=a.axis)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x, index), axis = node.ins, node.attrs.axis
        size = x.shape[axis]
        return b.emit(TakeAlongDx, douts[0], index, name=d(x), axis=axis, size=size), None

    @staticmethod
    def call(node: Node) -> Call:
        (x, index), axis = node.ins, node.attrs.axis
        args = (node.out, x, index, *around(x.shape, axis), index.shape[axis])
        return Call("whet_take_along_f32", args, "take_along")

    @staticmethod
    def bounds(node: Node) -> dict[int, tuple[int, int]]:
        return {1: (node.ins[0].shape[node.attrs.axis], 0)}


class TakeAlongDx(Op):
    """dx = 0, then dx[..., index[..., j, ...], ...] += dy[..., j, ...] for every j"""

    name = "take_along_dx"

    class Attrs(Axis):
        size: int = 0

    @staticmethod
    def infer(a: Attrs, dy: Type, index: Type) -> Type:
        require(dy.shape == index.shape, f"{dy} and {index} differ")
        return Type(dy.dtype, (*dy.shape[: a.axis], a.size, *dy.shape[a.axis + 1 :]))

    @staticmethod
    def ref(a: Attrs, dy: Array, index: Array) -> Array:
        outer, n, inner = around(dy.shape, a.axis)
        dx = np.zeros((outer, a.size, inner), dy.dtype)
        rows, columns = np.arange(outer)[:, None, None], np.arange(inner)
        np.add.at(dx, (rows, index.reshape(outer, n, inner), columns), dy.reshape(outer, n, inner))
        return dx.reshape(*dy.shape[: a.axis], a.size, *dy.shape[a.axis + 1 :])

    @staticmethod
    def call(node: Node) -> Call:
        (dy, index), axis = node.ins, node.attrs.axis
        args = (node.out, dy, index, *around(node.out.shape, axis), index.shape[axis])
        return Call("whet_take_along_dx_f32", args, "take_along")


class Detach(Op):
    """y = x, but no gradient passes"""

    name = "detach"
    moves = True
    view = True
    differentiable = False
    row_axis = staticmethod(same_axis)

    infer = staticmethod(infer_as_is)

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return x

    @staticmethod
    def call(node: Node) -> None:
        return None
