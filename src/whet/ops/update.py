"""What changes between steps: the base of optimizers, running statistics, gradient clipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from ..ir import Array, Attributes, Call, DType, Node, Op, Type, Value, f32
from ._common import infer_float, infer_pair, over_first, require, require_f32, require_same
from ._exact import line_sum


def update_call(node: Node) -> Call:
    """Results, then operands, then the element count, then the attributes in order."""
    numbers = numbers_of(type(node.attrs), node.attrs)
    args = (*node.outs, *node.ins, node.ins[0].type.elements, *numbers)
    return Call(f"whet_{node.op.name}_f32", args, node.op.name)


def numbers_of(kind: type[Attributes], a: Attributes) -> tuple[int | float, ...]:
    """The attributes that `kind` declares, in order, as C takes them."""
    values = (getattr(a, f.name) for f in fields(kind))
    return tuple(int(v) if isinstance(v, bool) else v for v in values)


def update_inplace(node: Node) -> tuple[tuple[int, int], ...]:
    """Result i replaces the operand it is the next value of; operand 1 is the gradient."""
    return ((0, 0), *((i, i + 1) for i in range(1, len(node.outs))))


@dataclass(frozen=True)
class Moment:
    """State that an optimizer keeps for every number of a parameter: `<parameter>.<name>`."""

    name: str
    torch: str  # its key in the state of PyTorch's optimizer
    when: str = ""  # the attribute that switches it on; empty if it always exists

    def exists(self, a: Attributes) -> bool:
        return not self.when or bool(getattr(a, self.when))


class UpdateOp(Op):
    """The float rule of an optimizer.

    Operands w, g, the moments, the number of this step if the rule counts steps, lr; results: the
    next w, then the next moments. The rule of an optimizer with more attributes derives its own
    from these.
    """

    class Attrs(Attributes):
        lr_scale: float = 1.0  # the ratio of the learning rate of this parameter to the common one
        weight_decay: float = 0.0

    moments: ClassVar[tuple[Moment, ...]] = ()
    counts: ClassVar[bool] = False  # whether it needs the number of the step, from 1

    @classmethod
    def infer(cls, a: Attributes, w: Type, g: Type, *rest: Type) -> Type | tuple[Type, ...]:
        count = sum(moment.exists(a) for moment in cls.moments)
        require_f32(w, g, *rest[count:])
        require(len(rest) == count + cls.counts + 1, f"needs {count} moments")
        require_same(w, g)
        kept = replace(w, dtype=cls.kept(a))
        require(all(t == kept for t in rest[:count]), f"moments must be {kept}")
        require(all(t.shape == () for t in rest[count:]), "the learning rate is one number")
        return (w, *rest[:count]) if count else w

    @classmethod
    def numbers(cls, a: Attributes) -> tuple[int | float, ...]:
        """What the kernel is told behind the sizes."""
        return numbers_of(cls.Attrs, a)

    @classmethod
    def kept(cls, a: Attributes) -> DType:
        """What moments are stored as."""
        return DType.BF16 if getattr(a, "narrow", False) else DType.F32

    @classmethod
    def sizes(cls, a: Attributes, elements: int) -> tuple[int, ...]:
        """What the kernel is told between operands and numbers."""
        return (elements,)

    @classmethod
    def slots(cls, a: Attributes, values: Sequence[Value]) -> tuple[Value | None, ...]:
        """`values`, which begin with the moments, with None for every moment there is not."""
        given = iter(values)
        found = [next(given) if moment.exists(a) else None for moment in cls.moments]
        return (*found, *given)

    @staticmethod
    def call(node: Node) -> Call:
        assert issubclass(node.op, UpdateOp)
        op, a, (w, g, *rest) = node.op, node.attrs, node.ins
        results = (node.out, *op.slots(a, node.outs[1:]))
        sizes = op.sizes(a, w.type.elements)
        args = (*results, w, g, *op.slots(a, rest), *sizes, *op.numbers(a))
        return Call(*kernel_of(op, op.kept(a), args))

    inplace = staticmethod(update_inplace)


class NextOp(Op):
    """The next value of its first operand, whose place it may take."""

    differentiable = False
    call = staticmethod(update_call)
    inplace = staticmethod(over_first)


def kernel_of(op: type[Op], kept: DType, args: Sequence[Any]) -> tuple[str, tuple[Any, ...], str]:
    """The kernel for moments of this type, its arguments, and its file."""
    file = op.name if kept is DType.F32 else f"{op.name}_{kept.label}"
    return f"whet_{op.name}_{kept.label}", tuple(args), file


class CountStep(NextOp):
    """t' = t + 1"""

    name = "count_step"
    infer = staticmethod(infer_float)

    @staticmethod
    def ref(a: Attributes, t: Array) -> Array:
        return t + 1


class Ema(NextOp):
    """s' = (1 - momentum) * s + momentum * correction * x, a running statistic"""

    name = "ema"

    class Attrs(Attributes):
        momentum: float = 0.1
        correction: float = 1.0

    infer = staticmethod(infer_pair)

    @staticmethod
    def ref(a: Attrs, s: Array, x: Array) -> Array:
        return (1 - a.momentum) * s + a.momentum * a.correction * x


class SumSquares(Op):
    """y = sum of x^2 over all elements"""

    name = "sum_squares"

    @staticmethod
    def infer(a: Attributes, x: Type) -> Type:
        require_f32(x)
        return f32()

    @staticmethod
    def ref(a: Attributes, x: Array) -> Array:
        return np.asarray((x * x).sum())

    @staticmethod
    def exact(a: Attributes, x: Array) -> Array:
        return line_sum((x * x).reshape(-1))

    call = staticmethod(update_call)


class ClipScale(Op):
    """y = min(1, limit / (sqrt(x) + 1e-6)): what to multiply gradients of squared norm x by"""

    name = "clip_scale"

    class Attrs(Attributes):
        limit: float = 1.0

    @staticmethod
    def infer(a: Attrs, x: Type) -> Type:
        require_f32(x)
        require(x.shape == (), "the squared norm is one number")
        return x

    @staticmethod
    def ref(a: Attrs, x: Array) -> Array:
        return np.minimum(1, a.limit / (np.sqrt(x) + 1e-6))

    call = staticmethod(update_call)


class Fill(Op):
    """y = value everywhere"""

    name = "fill"

    class Attrs(Attributes):
        shape: tuple[int, ...] = ()
        value: float = 0.0

    @staticmethod
    def infer(a: Attrs) -> Type:
        return f32(*a.shape)

    @staticmethod
    def ref(a: Attrs) -> Array:
        return np.full(a.shape, a.value)

    @staticmethod
    def call(node: Node) -> Call:
        return Call("whet_fill_f32", (node.out, node.out.type.elements, node.attrs.value), "fill")
