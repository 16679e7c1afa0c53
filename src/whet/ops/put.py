"""Adding to a part of an array: what a gradient does to one that others add to as well.

In place, this touches that part only and needs no array of zeros around the addend.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Call, DType, Node, Op, Type
from ._common import Axis, around, over_first, require, require_f32


class PutAdd(Op):
    """y = base, then y[..., index[j], ...] += u[..., j, ...] for every j, in order"""

    name = "put_add"
    Attrs = Axis

    @staticmethod
    def infer(a: Axis, base: Type, u: Type, index: Type) -> Type:
        require_f32(base, u)
        require(index.dtype is DType.I32, f"the index must be i32, not {index}")
        require(0 <= a.axis < base.rank, f"axis {a.axis} out of range for {base}")
        part = (*base.shape[: a.axis], *index.shape, *base.shape[a.axis + 1 :])
        require(u.shape == part, f"{u} is not {base} at {index} along axis {a.axis}")
        return base

    @staticmethod
    def ref(a: Axis, base: Array, u: Array, index: Array) -> Array:
        outer, n, inner = around(base.shape, a.axis)
        y = base.copy()
        for rows, more in zip(y.reshape(outer, n, inner), u.reshape(outer, -1, inner), strict=True):
            np.add.at(rows, index.ravel(), more)
        return y

    @staticmethod
    def call(node: Node) -> Call:
        base, u, index = node.ins
        sizes = (*around(base.shape, node.attrs.axis), index.type.elements)
        return Call("whet_put_add_f32", (node.out, base, u, index, *sizes), "put_add")

    inplace = staticmethod(over_first)


class SliceAdd(Op):
    """y = base, then y[..., start + j, ...] += u[..., j, ...] for every j"""

    name = "slice_add"

    class Attrs(Axis):
        start: int = 0

    @staticmethod
    def infer(a: Attrs, base: Type, u: Type) -> Type:
        require_f32(base, u)
        require(
            0 <= a.axis < base.rank == u.rank, f"{u} is not a part of {base} along axis {a.axis}"
        )
        part = (*base.shape[: a.axis], u.shape[a.axis], *base.shape[a.axis + 1 :])
        fits = u.shape == part and 0 <= a.start <= base.shape[a.axis] - u.shape[a.axis]
        require(fits, f"{u} does not fit into {base} from {a.start} of axis {a.axis}")
        return base

    @staticmethod
    def ref(a: Attrs, base: Array, u: Array) -> Array:
        y = base.copy()
        y[(slice(None),) * a.axis + (slice(a.start, a.start + u.shape[a.axis]),)] += u
        return y

    @staticmethod
    def call(node: Node) -> Call:
        (base, u), a = node.ins, node.attrs
        sizes = (*around(base.shape, a.axis), u.shape[a.axis], a.start)
        return Call("whet_slice_add_f32", (node.out, base, u, *sizes), "slice_add")

    inplace = staticmethod(over_first)
