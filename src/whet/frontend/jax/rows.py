"""The table of primitives: each row computes one primitive of JAX with calls of PyTorch.

A value is a number or an array of JAX or NumPy where it is known before the program runs, and a
tensor otherwise. Rows see no primitive whose operands are all known: JAX computes those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ...errors import FrontendError, UnsupportedOps

Value = Any  # Tensor | np.ndarray | jax.Array
ROWS: dict[str, Callable[..., Any]] = {}

REAL = ("float32", "float64")


def row(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            ROWS[name] = compute
        return compute

    return register


@dataclass(frozen=True, eq=False)
class Call:
    """One equation that is computed, with the parameters of its primitive."""

    equation: Any
    real: torch.dtype  # of real numbers: float64 where `check` looks for the truth

    @property
    def params(self) -> Mapping[str, Any]:
        params: Mapping[str, Any] = self.equation.params
        return params

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Of the i-th result."""
        return tuple(self.equation.outvars[i].aval.shape)

    def dtype(self, i: int = 0) -> torch.dtype:
        """Of the i-th result."""
        return type_of(self.equation.outvars[i].aval.dtype, self.real)

    @property
    def is_real(self) -> bool:
        return self.dtype().is_floating_point

    def tensor(self, value: Value) -> Tensor:
        return as_tensor(value, self.real)

    def refuse(self, what: str, try_: str = "") -> NoReturn:
        name = self.equation.primitive.name
        raise UnsupportedOps(f"{name} of JAX: {what}", at=place_of(self.equation), try_=try_)


def place_of(equation: Any) -> str:
    """The modules that an equation is in, for messages."""
    return str(equation.source_info.name_stack)


def is_known(value: Value) -> bool:
    return not isinstance(value, Tensor)


def uniform(value: Value) -> float | int | bool | None:
    """The number that all elements of a known value are, if they are one."""
    if isinstance(value, Tensor):
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or not array.size or (array != array.flat[0]).any():
        return None
    found: float | int | bool = array.flat[0].item()
    return found


def as_tensor(value: Value, real: torch.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.name in REAL:
        return torch.from_numpy(np.array(array, order="C")).to(real)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    if array.dtype.kind not in "fiub":
        raise FrontendError(f"numbers of type {array.dtype} of JAX cannot be computed with")
    return torch.from_numpy(np.array(array, order="C"))


def type_of(dtype: Any, real: torch.dtype) -> torch.dtype:
    """PyTorch's type of a type of JAX."""
    name = np.dtype(dtype).name
    if name in REAL:
        return real
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise FrontendError(f"numbers of type {name} of JAX cannot be computed with")
    return found
