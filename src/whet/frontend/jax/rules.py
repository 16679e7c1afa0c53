"""Functions with a rule of their own for gradients (`custom_jvp`, `custom_vjp`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import warn
from .package import jax

# Functions of JAX that PyTorch has too, with the same gradients at the corners.
SAME: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "relu6": F.relu6}
# Functions of JAX whose rule gives the gradient of what they compute, for finite operands.
AGREE = frozenset({"logaddexp", "logaddexp2", "logit", "_sinc_maclaurin", "_softmax", *SAME})


def function_of(equation: Any) -> str:
    """The name of the function that has the rule, or nothing if it is not known."""
    inner = next((v for k, v in equation.params.items() if k in ("call_jaxpr", "fun_jaxpr")), None)
    info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    return getattr(info, "func_name", None) or ""


def is_of_jax(equation: Any) -> bool:
    info = getattr(equation.params["call_jaxpr"].jaxpr, "debug_info", None)
    file = getattr(info, "func_filename", None)
    return file is not None and Path(jax().__file__).parent in Path(file).parents


def same(equation: Any) -> Callable[[Tensor], Tensor] | None:
    """The function of PyTorch for a function of JAX with a rule."""
    if equation.primitive.name != "custom_jvp_call" or not is_of_jax(equation):
        return None
    return SAME.get(function_of(equation))


def warn_of_rule(equation: Any) -> None:
    """Say that a rule is not used, unless it gives what differentiating the function gives."""
    kind = equation.primitive.name[: len("custom_jvp")]
    name = function_of(equation)
    if kind == "custom_jvp" and name in AGREE and is_of_jax(equation):
        return
    where = f" of {name}" if name else ""
    warn(f"the gradient{where} by jax.{kind} is not used: whet differentiates the function")
