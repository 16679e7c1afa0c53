"""What a program rounds in its products, in PyTorch's copy of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..emit.tensor_info import PartView
from ..ops.dots import HIGHEST, SMALLEST, LinearDots

if TYPE_CHECKING:
    from ..emit.program import Program


@dataclass(frozen=True)
class Rounding:
    """The parameters whose frozen numbers are multiplied as integers."""

    weights: frozenset[str]

    def mode(
        self, parameters: Mapping[str, torch.nn.Parameter], trained: Mapping[str, PartView | None]
    ) -> IntegerProducts:
        """While it is active, layers of these parameters round their input as the program does."""
        frozen = {}
        for name in self.weights:
            weight = parameters[name]
            view = trained.get(name)
            frozen[id(weight)] = None if view is None else without(weight, view)
        return IntegerProducts(frozen)


def rounding_of(program: Program) -> Rounding | None:
    nodes = (n for n in program.entries["train_step"].nodes if n.op is LinearDots)
    names = frozenset(v.link.of for n in nodes for v in n.ins[3:4] if v.link is not None)
    return Rounding(names) if names else None


def without(weight: torch.Tensor, view: PartView) -> torch.Tensor:
    """The weight with zeros where it trains."""
    whole = weight.detach().numpy()
    zeros = np.zeros_like(view.take(whole))
    return torch.from_numpy(np.ascontiguousarray(view.put(zeros, whole)))


class IntegerProducts(TorchFunctionMode):
    """Adds what rounding changes to the results of linear layers; no gradient sees it."""

    def __init__(self, frozen: Mapping[int, torch.Tensor | None]) -> None:
        """`frozen` has what is frozen of a weight by its id; None is all of it."""
        super().__init__()
        self.frozen = frozen

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        y = func(*args, **(kwargs or {}))
        if func is F.linear:
            x, weight, turned = args[0], args[1], False
        elif func is torch.addmm:  # of Conv1D in transformers
            x, weight, turned = args[1], args[2], True
        else:
            return y
        found = self.frozen_part(weight)
        if found is None:
            return y
        with torch.no_grad():
            w = found.to(x.dtype)
            change = F.linear(rounded(x) - x, w.T if turned else w)
        return y + change

    def frozen_part(self, weight: torch.Tensor) -> torch.Tensor | None:
        weight = getattr(weight, "whet_frozen", weight)
        for owner in (weight, weight._base):
            if id(owner) in self.frozen:
                part = self.frozen[id(owner)]
                return weight.detach() if part is None else part
        return None


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Rows in steps of 1/127 of their largest number, as of `quantize_rows`."""
    most = x.abs().amax(-1, keepdim=True)
    most = torch.where(most >= float(SMALLEST), most, torch.inf)
    scaled = torch.round(x * (HIGHEST / most)) * (most / HIGHEST)
    return torch.where(most < torch.inf, scaled, 0)
