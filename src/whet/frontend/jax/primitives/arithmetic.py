"""Primitives that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..rows import ROWS, Call, Value, is_known, row, type_of, uniform

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg, "sign": torch.sign, "abs": torch.abs, "exp": torch.exp, "exp2": torch.exp2,
    "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p, "tanh": torch.tanh,
    "logistic": torch.sigmoid, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "erf": torch.erf,
    "erfc": lambda x: 1 - torch.erf(x), "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "floor": torch.floor, "ceil": torch.ceil, "is_finite": torch.isfinite,
    "square": torch.square,
}  # fmt: skip
SAME = ("copy", "copy_p", "name", "sharding_constraint")

# With a number on either side where one is known, so that the program has a constant there.
BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "add": torch.add, "add_any": torch.add, "sub": torch.sub, "mul": torch.mul,
    "pow": torch.pow, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,
    "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip
TENSORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "atan2": torch.atan2, "rem": torch.fmod,
}  # fmt: skip
# On booleans, and on the bits of integers.
LOGIC: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "not": (torch.logical_not, torch.bitwise_not), "and": (torch.logical_and, torch.bitwise_and),
    "or": (torch.logical_or, torch.bitwise_or), "xor": (torch.logical_xor, torch.bitwise_xor),
}  # fmt: skip
TURNED = {"lt": torch.gt, "le": torch.ge, "gt": torch.lt, "ge": torch.le}


def unary(compute: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda call, x: compute(x)


def binary(name: str, compute: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    def of_two(call: Call, a: Value, b: Value) -> Tensor:
        left, right = uniform(a), uniform(b)
        if right is not None:
            return compute(a, right)
        if left is None:
            return compute(call.tensor(a), call.tensor(b))
        if name in TURNED:
            return TURNED[name](b, left)
        if name == "sub":
            return left - b
        return compute(left, b) if name == "pow" else compute(b, left)

    return of_two


def of_tensors(compute: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda call, a, b: compute(call.tensor(a), call.tensor(b))


def of_bits(
    of_flags: Callable[..., Tensor], of_integers: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    def compute(call: Call, *values: Value) -> Tensor:
        operands = [call.tensor(value) for value in values]
        flags = all(x.dtype == torch.bool for x in operands)
        return of_flags(*operands) if flags else of_integers(*operands)

    return compute


ROWS.update({name: unary(compute) for name, compute in UNARY.items()})
ROWS.update({name: binary(name, compute) for name, compute in BINARY.items()})
ROWS.update({name: of_tensors(compute) for name, compute in TENSORS.items()})
ROWS.update({name: of_bits(*both) for name, both in LOGIC.items()})
ROWS.update({name: unary(lambda x: x) for name in SAME})
ROWS["stop_gradient"] = unary(torch.detach)


@row("div")
def div(call: Call, a: Value, b: Value) -> Tensor:
    """The quotient of integers is rounded towards zero."""
    if not call.is_real:
        return torch.div(call.tensor(a), call.tensor(b), rounding_mode="trunc")
    left, right = uniform(a), uniform(b)
    if right is not None:
        return torch.div(a, right)
    return call.tensor(a) / call.tensor(b) if left is None else left / call.tensor(b)


@row("max", "min")
def extreme(call: Call, a: Value, b: Value) -> Tensor:
    """Where both operands are equal, each gets half of the gradient, as in JAX."""
    largest = call.equation.primitive.name == "max"
    if not call.is_real:
        x, y = call.tensor(a), call.tensor(b)
        return torch.where(x > y if largest else x < y, x, y)
    for x, other in ((a, b), (b, a)):
        if uniform(other) == (-inf if largest else inf):
            return call.tensor(x)
    compute = torch.maximum if largest else torch.minimum
    return compute(number(call, a), number(call, b))


def number(call: Call, value: Value) -> Tensor:
    """A tensor; without axes if all elements are the same known number."""
    one = uniform(value)
    return call.tensor(value if one is None else np.asarray(value).flat[0])


@row("integer_pow")
def integer_pow(call: Call, x: Tensor) -> Tensor:
    power = call.params["y"]
    return x * x * x if power == 3 else torch.pow(x, power)


@row("cbrt")
def cbrt(call: Call, x: Tensor) -> Tensor:
    return x.sign() * x.abs().pow(1 / 3)


@row("round")
def rounded(call: Call, x: Tensor) -> Tensor:
    if int(call.params["rounding_method"]) != 1:
        call.refuse("halves are rounded away from zero", "jnp.round, which rounds them to even")
    return torch.round(x)


@row("clamp")
def clamp(call: Call, low: Value, x: Value, high: Value) -> Tensor:
    """The slope at the bounds is 0."""
    x, first, last = call.tensor(x), uniform(low), uniform(high)
    if call.is_real and first is not None and last is not None and first <= last:
        return F.hardtanh(x, float(first), float(last))
    least, most = number(call, low), number(call, high)
    raised = torch.where(x <= least, least, x)
    return torch.where(raised >= most, most, raised)


@row("select_n")
def select_n(call: Call, which: Value, *cases: Value) -> Tensor:
    if len(cases) != 2:
        call.refuse(f"{len(cases)} cases", "jnp.where")
    if is_known(which):
        one = uniform(which)
        if one is not None:
            return call.tensor(cases[int(one)])
    flags = call.tensor(which)
    if flags.dtype != torch.bool:
        flags = flags != 0
    return torch.where(flags, call.tensor(cases[1]), call.tensor(cases[0]))


@row("convert_element_type")
def convert_element_type(call: Call, x: Tensor) -> Tensor:
    return converted(x, type_of(call.params["new_dtype"], call.real))


def converted(x: Tensor, wanted: torch.dtype) -> Tensor:
    """What a small integer cannot hold becomes the nearest one that it can, as in JAX."""
    if x.dtype == wanted:
        return x
    if x.is_floating_point() and wanted in SMALL:
        limits = torch.iinfo(wanted)
        x = torch.nan_to_num(x).clamp(limits.min, limits.max)
    return x.to(wanted)


SMALL = (torch.int8, torch.uint8, torch.int16)
# Formats by the bits of their exponents and mantissas.
FORMATS = {(8, 7): torch.bfloat16, (5, 10): torch.float16}


@row("reduce_precision")
def reduce_precision(call: Call, x: Tensor) -> Tensor:
    """Rounded to a smaller format, and stored as before."""
    bits = call.params["exponent_bits"], call.params["mantissa_bits"]
    if bits == (8, 23) and x.dtype != torch.float16:
        return x
    if bits not in FORMATS:
        call.refuse("{} bits of exponent and {} of mantissa".format(*bits), "bfloat16 or float16")
    return x if x.dtype == FORMATS[bits] else x.to(FORMATS[bits]).to(x.dtype)
