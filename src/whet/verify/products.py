"""What a program rounds in its products, in PyTorch's copy of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..emit.tensor_info import PartView
from ..errors import CheckError, option
from ..ir import Node
from ..ops.bf16 import LinearBf16Dw
from ..ops.dots import HIGHEST, SMALLEST
from ..passes.rewriting import Uses

if TYPE_CHECKING:
    from ..emit.program import Program

MOST = {"int8": 0.5, "bf16": 0.1}  # of the norm of the gradient, that it may move by


@dataclass(frozen=True)
class Rounding:
    """The parameters whose products are rounded."""

    bf16: frozenset[str]
    int8: frozenset[str]  # on the way forward, with what is frozen of them

    @property
    def words(self) -> str:
        kinds = [kind for kind in MOST if getattr(self, kind)]
        return f"linear layers multiply {' and '.join(kinds)} on both sides of this comparison"

    def check(self, changed: float | None) -> None:
        """Raise CheckError if the gradient moved by more than such products may move it."""
        kinds = [kind for kind in MOST if getattr(self, kind)]
        most = max(MOST[kind] for kind in kinds)
        if changed is not None and not changed <= most:
            raise CheckError(
                f"products of {' and '.join(kinds)} change the gradient by {100 * changed:.0f} %",
                why=f"{100 * most:.0f} % of its norm is the most that they may",
                try_=f"no {option('products', '+'.join(kinds))}",
            )

    def mode(
        self, parameters: Mapping[str, torch.nn.Parameter], trained: Mapping[str, PartView | None]
    ) -> RoundedProducts:
        """While it is active, layers of these parameters round as the program does."""
        frozen = {}
        for name in self.int8:
            weight, view = parameters[name], trained.get(name)
            frozen[id(weight)] = None if view is None else without(weight, view)
        return RoundedProducts({id(parameters[name]) for name in self.bf16}, frozen)


def rounding_of(program: Program) -> Rounding | None:
    uses, found = Uses(program.entries["train_step"]), program.rounded_products
    bf16 = parameters_of((n for n in found.get("bf16", ()) if n.op is not LinearBf16Dw), uses, 1)
    int8 = parameters_of(found.get("int8", ()), uses, 3)
    return Rounding(bf16, int8) if bf16 or int8 else None


def parameters_of(nodes: Iterable[Node], uses: Uses, place: int) -> frozenset[str]:
    """The names of those that the weights of these layers are, or are made from."""
    found = set()
    for node in nodes:
        leaf = node.ins[place]
        while (maker := uses.producer.get(leaf)) is not None:
            leaf = maker.ins[0]
        found.add(leaf.link.of if leaf.link else leaf.name)
    return frozenset(found)


def without(weight: torch.Tensor, view: PartView) -> torch.Tensor:
    """The weight with zeros where it trains."""
    whole = weight.detach().numpy()
    zeros = np.zeros_like(view.take(whole))
    return torch.from_numpy(np.ascontiguousarray(view.put(zeros, whole)))


class RoundedProducts(TorchFunctionMode):
    """Linear layers that multiply bfloat16, or that add what rounding to int8 changes.

    No gradient sees the latter.
    """

    def __init__(self, bf16: set[int], frozen: Mapping[int, torch.Tensor | None]) -> None:
        """By the ids of weights: `frozen` has what is frozen of one; None is all of it."""
        super().__init__()
        self.bf16, self.frozen = bf16, frozen

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is F.linear:
            x, weight, bias, turned = *args[:2], (*args[2:], None)[0], False
            bias = (kwargs or {}).get("bias", bias)
        elif func is torch.addmm:  # of Conv1D in transformers
            (bias, x, weight), turned = args, True
        else:
            return func(*args, **(kwargs or {}))
        whole, beside = getattr(weight, "whet_parts", (weight, None))
        owner = next((id(w) for w in (whole, whole._base) if id(w) in self.known), None)
        if owner is None:
            return func(*args, **(kwargs or {}))
        y = self.linear(x, whole.T if turned else whole, owner)
        if beside is not None:
            low = self.linear(x, beside.down, id(beside.down)) * beside.scale
            y = y + self.linear(low, beside.up, id(beside.up))
        return y if bias is None else y + bias

    @property
    def known(self) -> set[int]:
        return self.bf16 | self.frozen.keys()

    def linear(self, x: torch.Tensor, w: torch.Tensor, owner: int) -> torch.Tensor:
        product: Any = Bf16Linear.apply if owner in self.bf16 else F.linear
        y: torch.Tensor = product(x, w)
        if owner not in self.frozen:
            return y
        with torch.no_grad():
            part = self.frozen[owner]
            whole = w if part is None else part.to(x.dtype)
            whole = whole.T if whole.shape != w.shape else whole
            change = F.linear(int8_rows(x), whole) - product(x, whole)
        return y + change


class Bf16Linear(torch.autograd.Function):
    """Products of bfloat16 numbers forward and backward, in the precision of x."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x, w = bf16(x), bf16(w)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        dy = bf16(dy)
        return dy @ w, dy.reshape(-1, dy.shape[-1]).T @ x.reshape(-1, x.shape[-1])


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.float().bfloat16().to(x.dtype)


def int8_rows(x: torch.Tensor) -> torch.Tensor:
    """Rows in steps of 1/127 of their largest number, as of `quantize_rows`."""
    most = x.abs().amax(-1, keepdim=True)
    most = torch.where(most >= float(SMALLEST), most, torch.inf)
    scaled = torch.round(x * (HIGHEST / most)) * (most / HIGHEST)
    return torch.where(most < torch.inf, scaled, 0)
