"""The largest element: a reduction whose gradient is made of element-wise operators."""

from __future__ import annotations

import numpy as np

from ..ir import Builder, Grads, Node
from ._common import d
from .binary import Div, Eq, Mul, Where
from .reduce import Reduce, Sum


class Amax(Reduce):
    """y = max of x over axes; equal maxima share the gradient"""

    name = "amax"
    reduction = staticmethod(np.max)

    @staticmethod
    def vjp(b: Builder, node: Node, douts: Grads, wants: tuple[bool, ...]) -> Grads:
        assert douts[0] is not None
        (x,) = node.ins
        one, zero = b.const(np.float32(1)), b.const(np.float32(0))
        hit = b.emit(Where, b.emit(Eq, x, node.out), one, zero)
        share = b.emit(Div, douts[0], b.emit(Sum, hit, axes=node.attrs.axes))
        return (b.emit(Mul, hit, share, name=d(x)),)
