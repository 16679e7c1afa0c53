"""A student as `whet.compile` takes it: its prediction, with what the terms compare."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import whet

from ....frontend.torch.masks import copied
from .objective import Match
from .taps import Recorder, module_of, prediction


class Collect:
    """A forward hook of the whole student that returns its prediction with its adapted tensors.

    The parameters of adapters are the student's own, called distill_<adapter>_<name>: a module of
    their own would become a layer of an `nn.Sequential`.
    """

    def __init__(
        self, matches: Sequence[Match], adapters: Sequence[nn.Module], taken: dict[str, Recorder]
    ) -> None:
        self.matches, self.adapters, self.taken = tuple(matches), list(adapters), taken

    def __call__(self, model: nn.Module, inputs: Any, output: Any) -> Any:
        found = {name: recorder.take() for name, recorder in self.taken.items()}
        others = []
        for match in self.matches:
            if name := match.term.layer:
                tensor = model.get_parameter(name) if match.fixed else found[name]
                others.append(self.adapted(match, tensor, model))
        return whet.Outputs(prediction(output), tuple(others)) if others else output

    def adapted(self, match: Match, x: Tensor, model: nn.Module) -> Tensor:
        if match.adapter is None:
            return x
        adapter = self.adapters[match.adapter]
        own: dict[str, Tensor] = {
            name: model.get_parameter(adapter_name(match.adapter, name))
            for name, _ in adapter.named_parameters()
        }
        adapted: Tensor = torch.func.functional_call(adapter, own, (x,))
        return adapted


def adapter_name(number: int, name: str) -> str:
    return f"distill_{number}_{name.replace('.', '_')}"


def observed(
    student: nn.Module, matches: Sequence[Match], adapters: Sequence[nn.Module]
) -> nn.Module:
    """A copy of the student, its parameters under their names, that returns `whet.Outputs`."""
    model = copied(student, student)
    taken = {m.term.layer: Recorder(m.term.layer) for m in matches if m.term.layer and not m.fixed}
    for name, recorder in taken.items():
        module_of(model, name).register_forward_hook(recorder)
    for number, adapter in enumerate(adapters):
        for name, parameter in adapter.named_parameters():
            own = nn.Parameter(parameter.detach().clone())
            model.register_parameter(adapter_name(number, name), own)
    model.register_forward_hook(Collect(matches, copy.deepcopy(list(adapters)), taken))
    return model
