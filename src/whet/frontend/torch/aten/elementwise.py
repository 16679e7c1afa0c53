"""Element-wise operators, with PyTorch's broadcasting for any stored axis order."""

from __future__ import annotations

import math
from typing import Any

import torch

from ....ir import DType, Op, Value
from ....ops import unary as u
from ....ops.activation import Elu, Gelu, GeluTanh, Silu, Softplus
from ....ops.binary import Add, Div, Eq, Ge, Gt, Maximum, Mul, Ne, Sub, Where
from ....ops.integer import And, Cast, Or
from ....ops.reduce import Expand
from ...model import Order, Tensor, plain_order
from ..importer import Importer, Operand, Unsupported, aten
from ..tensor import ir_dtype


def simple(name: str, op: type[Op]) -> None:
    @aten(name)
    def handler(m: Importer, x: Tensor) -> Tensor:
        return m.emit(op, floating(x), order=x.order)


for _name, _op in {
    "relu.default": u.Relu,
    "hardswish.default": u.Hardswish,
    "hardsigmoid.default": u.Hardsigmoid,
    "sigmoid.default": u.Sigmoid,
    "tanh.default": u.Tanh,
    "silu.default": Silu,
    "exp.default": u.Exp,
    "log.default": u.Log,
    "sqrt.default": u.Sqrt,
    "rsqrt.default": u.Rsqrt,
    "abs.default": u.Abs,
    "sin.default": u.Sin,
    "cos.default": u.Cos,
    "erf.default": u.Erf,
    "floor.default": u.Floor,
    "neg.default": u.Neg,
}.items():
    simple(_name, _op)


def floating(x: Tensor) -> Value:
    if x.dtype is not DType.F32:
        raise Unsupported(f"arithmetic on {x.value.type} that depends on an input")
    return x.value


@aten("relu6.default")
def relu6(m: Importer, x: Tensor) -> Tensor:
    return m.emit(u.Hardtanh, floating(x), order=x.order, low=0.0, high=6.0)


@aten("hardtanh.default")
def hardtanh(m: Importer, x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    return m.emit(u.Hardtanh, floating(x), order=x.order, low=float(low), high=float(high))


@aten("clamp.default", "clip.default")
def clamp(m: Importer, x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    low = -math.inf if min is None else float(min)
    high = math.inf if max is None else float(max)
    return m.emit(u.Clamp, floating(x), order=x.order, low=low, high=high)


@aten("clamp_min.default")
def clamp_min(m: Importer, x: Tensor, low: float) -> Tensor:
    return clamp(m, x, min=low)


@aten("clamp_max.default")
def clamp_max(m: Importer, x: Tensor, high: float) -> Tensor:
    return clamp(m, x, max=high)


@aten("leaky_relu.default")
def leaky_relu(m: Importer, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    slope = float(negative_slope)
    return m.emit(u.LeakyRelu, floating(x), order=x.order, negative_slope=slope)


@aten("prelu.default")
def prelu(m: Importer, x: Operand, weight: Operand) -> Tensor:
    """x > 0 ? x : w * x, with w along the channel axis; the slope at 0 is w"""
    t, w = m.tensor(x), m.tensor(weight)
    if math.prod(w.shape) == 1:
        w = m.arranger.view(w, ())
    elif t.rank > 1:
        w = m.arranger.view(w, (1, math.prod(w.shape)) + (1,) * (t.rank - 2))
    return where(m, binary(m, Gt, t, 0.0), t, binary(m, Mul, t, w))


@aten("gelu.default")
def gelu(m: Importer, x: Tensor, approximate: str = "none") -> Tensor:
    return m.emit(
        GeluTanh if approximate == "tanh" else Gelu,
        floating(x),
        order=x.order,
    )


@aten("elu.default")
def elu(
    m: Importer, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Tensor:
    attrs = dict(alpha=float(alpha), scale=float(scale), input_scale=float(input_scale))
    return m.emit(Elu, floating(x), order=x.order, **attrs)


@aten("selu.default")
def selu(m: Importer, x: Tensor) -> Tensor:
    return elu(m, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@aten("celu.default")
def celu(m: Importer, x: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(m, x, float(alpha), 1.0, 1.0 / float(alpha))


@aten("softplus.default")
def softplus(m: Importer, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    attrs = dict(beta=float(beta), threshold=float(threshold))
    return m.emit(Softplus, floating(x), order=x.order, **attrs)


@aten("mish.default")
def mish(m: Importer, x: Tensor) -> Tensor:
    inner = m.emit(Softplus, floating(x), order=x.order)
    return binary(m, Mul, x, m.emit(u.Tanh, inner.value, order=x.order))


@aten("log_sigmoid.default")
def log_sigmoid(m: Importer, x: Tensor) -> Tensor:
    inner = m.emit(Softplus, m.emit(u.Neg, floating(x), order=x.order).value, order=x.order)
    return m.emit(u.Neg, inner.value, order=x.order)


@aten("pow.Tensor_Scalar")
def power(m: Importer, x: Tensor, exponent: float) -> Tensor:
    if exponent == 2:
        return binary(m, Mul, x, x)
    if exponent == 0.5:
        return m.emit(u.Sqrt, floating(x), order=x.order)
    return m.emit(u.Pow, floating(x), order=x.order, exponent=float(exponent))


@aten("square.default")
def square(m: Importer, x: Tensor) -> Tensor:
    return binary(m, Mul, x, x)


@aten("reciprocal.default")
def reciprocal(m: Importer, x: Tensor) -> Tensor:
    return binary(m, Div, 1.0, x)


# Broadcasting --------------------------------------------------------------------------------


def aligned(m: Importer, *operands: Operand) -> tuple[list[Value], Order]:
    """All operands in one stored order, ready for an IR operator that broadcasts."""
    tensors = [x for x in operands if isinstance(x, Tensor)] or [m.tensor(x) for x in operands]
    shapes = [tuple(x.shape) if isinstance(x, (Tensor, torch.Tensor)) else () for x in operands]
    rank = max(len(s) for s in shapes)
    leader = max(tensors, key=lambda t: (t.rank == rank, math.prod(t.shape), t.rank))
    lead = rank - leader.rank
    order = (*range(lead), *(a + lead for a in leader.order))
    values = []
    for x, shape in zip(operands, shapes, strict=True):
        if not shape:
            values.append(m.tensor(x).value)
            continue
        full = (1,) * (rank - len(shape)) + shape
        if isinstance(x, torch.Tensor):
            values.append(m.stored(x.reshape(full), order))
        else:
            values.append(m.arranger.arrange(m.arranger.view(m.tensor(x), full), order))
    return values, order


def real(m: Importer, x: Operand) -> Operand:
    """The operand as PyTorch's type promotion converts it to floating point."""
    if isinstance(x, torch.Tensor) and not x.is_floating_point():
        return x.to(torch.float64)
    if isinstance(x, Tensor) and x.dtype is DType.I32:
        return cast(m, x, "f32")
    return where(m, x, 1.0, 0.0) if isinstance(x, Tensor) and x.dtype is DType.U8 else x


def cast(m: Importer, x: Tensor, to: str) -> Tensor:
    return m.emit(Cast, x.value, order=x.order, to=to)


def kind(x: Operand) -> DType:
    """The IR's element type for any operand."""
    if isinstance(x, Tensor):
        return x.dtype
    if isinstance(x, torch.Tensor):
        found = ir_dtype(x.dtype)
        assert found is not None
        return found
    return DType.U8 if isinstance(x, bool) else DType.I32 if isinstance(x, int) else DType.F32


def whole(m: Importer, x: Operand) -> Operand:
    """An integer operand, as i32."""
    if isinstance(x, Tensor):
        return cast(m, x, "i32") if x.dtype is DType.U8 else x
    return torch.as_tensor(x).to(torch.int64)


def truth(m: Importer, x: Operand) -> Operand:
    """An operand as a boolean: whether it is not 0."""
    if isinstance(x, bool):
        return torch.tensor(x)
    return x if kind(x) is DType.U8 else binary(m, Ne, x, 0)


INTEGER = (Add, Sub, Mul, Gt, Ge, Eq, Ne)


def binary(m: Importer, op: type[Op], a: Operand, b: Operand) -> Tensor:
    """An integer operator if both operands are integers and there is one, else a floating-point
    one."""
    kinds = {kind(a), kind(b)}
    if kinds == {DType.U8} and op in (Add, Mul):
        op, operands = (Or if op is Add else And), (a, b)
    elif DType.F32 not in kinds and op in INTEGER:
        operands = whole(m, a), whole(m, b)
    else:
        operands = real(m, a), real(m, b)
    values, order = aligned(m, *operands)
    return m.emit(op, *values, order=order)


def scaled(m: Importer, x: Operand, alpha: float) -> Operand:
    return x if alpha == 1 else binary(m, Mul, x, alpha) if isinstance(x, Tensor) else x * alpha


@aten("add.Tensor", "add.Scalar")
def add(m: Importer, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    return binary(m, Add, a, scaled(m, b, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(m: Importer, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    return binary(m, Sub, a, scaled(m, b, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(m: Importer, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    return binary(m, Sub, b, scaled(m, a, alpha))


@aten("mul.Tensor", "mul.Scalar")
def mul(m: Importer, a: Operand, b: Operand) -> Tensor:
    return binary(m, Mul, a, b)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(m: Importer, a: Operand, b: Operand) -> Tensor:
    if isinstance(b, (int, float)):
        return binary(m, Mul, a, 1.0 / b) if b else binary(m, Div, a, float(b))
    return binary(m, Div, a, b)


@aten("maximum.default", "max.other")
def maximum(m: Importer, a: Operand, b: Operand) -> Tensor:
    return binary(m, Maximum, a, b)


@aten("minimum.default", "min.other")
def minimum(m: Importer, a: Operand, b: Operand) -> Tensor:
    return negated(m, binary(m, Maximum, negated(m, a), negated(m, b)))


def negated(m: Importer, x: Operand) -> Tensor:
    t = m.tensor(real(m, x))
    return m.emit(u.Neg, t.value, order=t.order)


@aten("addcmul.default")
def addcmul(m: Importer, x: Operand, a: Operand, b: Operand, *, value: float = 1) -> Tensor:
    return binary(m, Add, x, scaled(m, binary(m, Mul, a, b), value))


@aten("addcdiv.default")
def addcdiv(m: Importer, x: Operand, a: Operand, b: Operand, *, value: float = 1) -> Tensor:
    return binary(m, Add, x, scaled(m, binary(m, Div, a, b), value))


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(m: Importer, a: Operand, b: Operand, weight: Operand) -> Tensor:
    return binary(m, Add, a, binary(m, Mul, binary(m, Sub, b, a), weight))


def comparison(name: str, op: type[Op], swap: bool) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def handler(m: Importer, a: Operand, b: Operand) -> Tensor:
        return binary(m, op, b, a) if swap else binary(m, op, a, b)


comparison("gt", Gt, swap=False)
comparison("lt", Gt, swap=True)
comparison("ge", Ge, swap=False)
comparison("le", Ge, swap=True)
comparison("eq", Eq, swap=False)
comparison("ne", Ne, swap=False)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf")
def where(m: Importer, condition: Operand, a: Operand, b: Operand) -> Tensor:
    kinds = {kind(a), kind(b)}
    change = real if DType.F32 in kinds else whole
    values, order = aligned(m, truth(m, condition), change(m, a), change(m, b))
    return m.emit(Where, *values, order=order)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(m: Importer, x: Operand, mask: Operand, value: Operand) -> Tensor:
    return where(m, mask, value, x)


@aten("_to_copy.default")
def to_copy(m: Importer, x: Tensor, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    if dtype is None or (dtype in (torch.float32, torch.float64) and x.dtype is DType.F32):
        return x
    if dtype in (torch.int32, torch.int64) and x.dtype is DType.I32:
        return x
    if dtype == torch.bool and x.dtype is DType.U8:
        return x
    if dtype in (torch.float32, torch.float64):
        return m.tensor(real(m, x))
    if dtype in (torch.int32, torch.int64):
        return cast(m, x, "i32")
    if dtype == torch.bool:
        return m.tensor(truth(m, x))
    raise Unsupported(f"a conversion of {x.value.type} to {dtype}")


TORCH_DTYPES = {DType.F32: torch.float64, DType.I32: torch.int64, DType.U8: torch.bool}


@aten("type_as.default")
def type_as(m: Importer, x: Operand, other: Tensor | torch.Tensor) -> Tensor:
    dtype = TORCH_DTYPES[other.dtype] if isinstance(other, Tensor) else other.dtype
    return to_copy(m, m.tensor(x), dtype)


# Constants with the shape and type of an operand ----------------------------------------------


@aten("new_full.default")
def new_full(
    m: Importer, x: Tensor, size: tuple[int, ...], value: float, *,
    dtype: torch.dtype | None = None, **_: Any,
) -> torch.Tensor:  # fmt: skip
    return torch.full(size, value, dtype=dtype or TORCH_DTYPES[x.dtype])


@aten("new_zeros.default", "new_empty.default")
def new_zeros(m: Importer, x: Tensor, size: tuple[int, ...], **kwargs: Any) -> torch.Tensor:
    return new_full(m, x, size, 0, **kwargs)


@aten("new_ones.default")
def new_ones(m: Importer, x: Tensor, size: tuple[int, ...], **kwargs: Any) -> torch.Tensor:
    return new_full(m, x, size, 1, **kwargs)


@aten("fill.Scalar", "fill.Tensor")
def fill(m: Importer, x: Tensor | torch.Tensor, value: Operand) -> Operand:
    shape = tuple(x.shape)
    if isinstance(value, Tensor):
        one = m.arranger.view(value, (1,) * len(shape))
        return m.emit(Expand, floating(one), order=plain_order(len(shape)), shape=shape)
    dtype = TORCH_DTYPES[x.dtype] if isinstance(x, Tensor) else x.dtype
    number = value.item() if isinstance(value, torch.Tensor) else value
    return torch.full(shape, number, dtype=dtype)


@aten("full_like.default")
def full_like(m: Importer, x: Tensor, value: float, **kwargs: Any) -> torch.Tensor:
    return new_full(m, x, x.shape, value, **kwargs)


@aten("zeros_like.default", "empty_like.default")
def zeros_like(m: Importer, x: Tensor, **kwargs: Any) -> torch.Tensor:
    return new_full(m, x, x.shape, 0, **kwargs)


@aten("ones_like.default")
def ones_like(m: Importer, x: Tensor, **kwargs: Any) -> torch.Tensor:
    return new_full(m, x, x.shape, 1, **kwargs)
