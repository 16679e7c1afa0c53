"""Primitives that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..rows import ROWS, Call, Value, is_known, row, type_of, uniform

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg, "sign": torch.sign, "abs": torch.abs, "exp": torch.exp, "exp2": torch.exp2,
    "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p, "tanh": torch.tanh,
    "logistic": torch.sigmoid, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "erf": torch.erf,
    "erfc": lambda x: 1 - torch.erf(x), "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "floor": torch.floor, "ceil": torch.ceil, "is_finite": torch.isfinite,
    "not": torch.logical_not, "square": torch.square,
}  # fmt: skip
SAME = ("copy", "copy_p", "name", "reduce_precision", "sharding_constraint")

# With a number on either side where one is known, so that the program has a constant there.
BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "add": torch.add, "add_any": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "pow": torch.pow, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,
    "gt": torch.gt, "ge": torch.ge,
}  # fmt: skip
TENSORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "and": torch.logical_and, "or": torch.logical_or, "xor": torch.logical_xor,
    "atan2": torch.atan2, "rem": torch.fmod,
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
        if name in ("sub", "div"):
            return left - b if name == "sub" else left / b
        return compute(left, b) if name == "pow" else compute(b, left)

    return of_two


def of_tensors(compute: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda call, a, b: compute(call.tensor(a), call.tensor(b))


ROWS.update({name: unary(compute) for name, compute in UNARY.items()})
ROWS.update({name: binary(name, compute) for name, compute in BINARY.items()})
ROWS.update({name: of_tensors(compute) for name, compute in TENSORS.items()})
ROWS.update({name: unary(lambda x: x) for name in SAME})
ROWS["stop_gradient"] = unary(torch.detach)


@row("max", "min")
def extreme(call: Call, a: Value, b: Value) -> Tensor:
    largest = call.equation.primitive.name == "max"
    for x, other in ((a, b), (b, a)):
        bound = uniform(other)
        if bound is not None:
            if largest:
                return torch.relu(x) if bound == 0 and x.is_floating_point() else x.clamp(min=bound)
            return torch.clamp(x, max=bound)
    compute = torch.maximum if largest else torch.minimum
    return compute(call.tensor(a), call.tensor(b))


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
    bounds = uniform(low), uniform(high)
    if None in bounds:
        return torch.minimum(torch.maximum(call.tensor(x), call.tensor(low)), call.tensor(high))
    return torch.clamp(call.tensor(x), *bounds)


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
    wanted = type_of(call.params["new_dtype"], call.real)
    return x if x.dtype == wanted else x.to(wanted)
