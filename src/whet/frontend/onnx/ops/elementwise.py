"""Functions of single elements, comparisons and logic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import Call, Value, row, tensor, type_of

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin,
    "Asinh": torch.asinh, "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil,
    "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "IsNaN": torch.isnan, "Log": torch.log, "Neg": torch.neg,
    "Not": torch.logical_not, "BitwiseNot": torch.bitwise_not, "Reciprocal": torch.reciprocal,
    "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign,
    "Sin": torch.sin, "Sinh": torch.sinh, "Softplus": F.softplus, "Softsign": F.softsign,
    "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh, "HardSwish": F.hardswish,
    "Mish": F.mish, "Identity": lambda x: x,
}  # fmt: skip
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Equal": torch.eq,
    "Greater": torch.gt, "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le,
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}  # fmt: skip


def one(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda call, *operands: compute(*operands)


for name, unary in UNARY.items():
    row(name)(one(unary))
for name, binary in BINARY.items():
    row(name)(one(binary))


@row("Div")
def div(c: Call, a: Tensor, b: Tensor) -> Tensor:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@row("Mod")
def mod(c: Call, a: Tensor, b: Tensor) -> Tensor:
    return torch.fmod(a, b) if c.flag("fmod") else torch.remainder(a, b)


@row("Pow", either=(1,))
def power(c: Call, a: Tensor, b: Value) -> Tensor:
    """The result has the type of the base."""
    if isinstance(b, np.ndarray) and b.size == 1 and b.ndim <= a.ndim:
        return torch.pow(a, b.item()).to(a.dtype)
    exponent = tensor(b)
    kind = torch.promote_types(a.dtype, exponent.dtype)
    return torch.pow(a.to(kind), exponent.to(kind)).to(a.dtype)


@row("BitShift")
def shift(c: Call, a: Tensor, b: Tensor) -> Tensor:
    return a << b if c.attr("direction") == "LEFT" else a >> b


@row("Sum")
def add_all(c: Call, *values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values)


@row("Mean")
def mean_all(c: Call, *values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values) / len(values)


@row("Max")
def largest(c: Call, *values: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, values)


@row("Min")
def smallest(c: Call, *values: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, values)


@row("Where")
def where(c: Call, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


@row("Clip", either=(1, 2))
def clip(c: Call, x: Tensor, low: Value = None, high: Value = None) -> Tensor:
    """From opset 11 on, the limits are operands. Where low > high, the result is high."""
    if c.version < 11:
        low, high = c.attr("min"), c.attr("max")
    bounds = [b.item() if isinstance(b, np.ndarray) and b.size == 1 else b for b in (low, high)]
    if all(b is None or isinstance(b, (int, float)) for b in bounds):
        return x if bounds == [None, None] else torch.clamp(x, *bounds)
    low, high = (None if b is None else torch.as_tensor(tensor(b), dtype=x.dtype) for b in bounds)
    return torch.clamp(x, low, high)


@row("Cast")
def cast(c: Call, x: Tensor) -> Tensor:
    return x.to(type_of(c, c.attr("to")))


@row("CastLike")
def cast_like(c: Call, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


@row("IsInf")
def is_inf(c: Call, x: Tensor) -> Tensor:
    positive, negative = c.flag("detect_positive", 1), c.flag("detect_negative", 1)
    found = torch.zeros_like(x, dtype=torch.bool)
    found = found | (x == math.inf) if positive else found
    return found | (x == -math.inf) if negative else found


@row("LeakyRelu")
def leaky_relu(c: Call, x: Tensor) -> Tensor:
    return F.leaky_relu(x, c.attr("alpha", 0.01))


@row("PRelu")
def prelu(c: Call, x: Tensor, slope: Tensor) -> Tensor:
    """One slope for each channel becomes PyTorch's, any other shape is computed as it is said."""
    if slope.numel() == 1 and x.ndim > 1:
        return F.prelu(x, slope.reshape(1))
    per_channel = x.ndim > 1 and slope.numel() == x.shape[1]
    if per_channel and slope.ndim == x.ndim - 1 and slope.shape[0] == x.shape[1]:
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, slope * x, x)


@row("Elu")
def elu(c: Call, x: Tensor) -> Tensor:
    return F.elu(x, c.attr("alpha", 1.0))


@row("Celu")
def celu(c: Call, x: Tensor) -> Tensor:
    return F.celu(x, c.attr("alpha", 1.0))


ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # of Selu, in the standard


@row("Selu")
def selu(c: Call, x: Tensor) -> Tensor:
    alpha, gamma = c.attr("alpha", ALPHA), c.attr("gamma", GAMMA)
    if abs(alpha - ALPHA) < 1e-6 and abs(gamma - GAMMA) < 1e-6:
        return F.selu(x)
    return gamma * F.elu(x, alpha)


@row("ThresholdedRelu")
def thresholded_relu(c: Call, x: Tensor) -> Tensor:
    return torch.where(x > c.attr("alpha", 1.0), x, torch.zeros_like(x))


@row("HardSigmoid")
def hard_sigmoid(c: Call, x: Tensor) -> Tensor:
    alpha, beta = c.attr("alpha", 0.2), c.attr("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and abs(beta - 0.5) < 1e-6:
        return F.hardsigmoid(x)
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@row("Gelu")
def gelu(c: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=c.attr("approximate", "none"))


@row("Swish")
def swish(c: Call, x: Tensor) -> Tensor:
    alpha = c.attr("alpha", 1.0)
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@row("Shrink")
def shrink(c: Call, x: Tensor) -> Tensor:
    bias, limit = c.attr("bias", 0.0), c.attr("lambd", 0.5)
    inside = torch.where(x > limit, x - bias, torch.zeros_like(x))
    return torch.where(x < -limit, x + bias, inside)


@row("Dropout", known=(1, 2))
def dropout(
    c: Call, x: Tensor, ratio: Any = None, training: Any = None
) -> tuple[Tensor, Tensor | None]:
    """Drops where the file says so, or, with a file that leaves it open, while the model trains."""
    share = c.attr("ratio", 0.5) if ratio is None else float(ratio)
    on = c.training if training is None else bool(training)
    if not on or share == 0:
        return x, torch.ones_like(x, dtype=torch.bool) if c.wants(1) else None
    if c.wants(1):
        c.refuse("the mask of what it drops is used")
    if training is not None and not c.training:
        c.refuse("it drops at random in every run", try_="export the model for inference")
    return F.dropout(x, share, training=True), None


@row("Binarizer", domain="ai.onnx.ml")
def binarizer(c: Call, x: Tensor) -> Tensor:
    return (x > c.attr("threshold", 0.0)).to(x.dtype)
