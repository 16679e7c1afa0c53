"""Outputs of layers inside a model, by forward hooks, and its weights, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import FrontendError


class Recorder:
    """A forward hook that keeps what its layer returns. Copies of a model have their own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[Any] = []

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.seen.append(output)

    def take(self) -> Tensor:
        seen, self.seen = self.seen, []
        if len(seen) != 1:
            raise FrontendError(
                f"layer {self.name!r} runs {len(seen)} times in one pass",
                why="its output is compared, so there must be one",
                try_="another layer, or one module for each use",
            )
        if not isinstance(seen[0], Tensor):
            raise FrontendError(
                f"layer {self.name!r} returns a {type(seen[0]).__name__}, not a tensor",
                try_="a layer inside it",
            )
        return seen[0]


def prediction(output: Any) -> Tensor:
    """What a model predicts, as `whet.compile` takes it."""
    if hasattr(output, "logits"):
        output = output.logits
    if isinstance(output, (tuple, list)) and len(output) == 1:
        output = output[0]
    if not isinstance(output, Tensor):
        raise FrontendError(f"the model returns a {type(output).__name__}, not a tensor")
    return output


def recorders(model: nn.Module, layers: Iterable[str]) -> dict[str, tuple[Recorder, Any]]:
    """A recorder in each of the layers, and the handle that removes it."""
    found = {}
    for layer in layers:
        recorder = Recorder(layer)
        found[layer] = recorder, module_of(model, layer).register_forward_hook(recorder)
    return found


def module_of(model: nn.Module, layer: str) -> nn.Module:
    modules = dict(model.named_modules())
    if layer not in modules:
        raise unknown("layer", layer, modules)
    return modules[layer]


def weight_of(model: nn.Module, name: str) -> Tensor:
    weights = dict(model.named_parameters())
    if name not in weights:
        raise unknown("weight", name, weights)
    return weights[name]


def unknown(what: str, name: str, known: Iterable[str]) -> FrontendError:
    from difflib import get_close_matches

    names = [n for n in known if n]
    close = get_close_matches(name, names, 5, 0.3) or names[:8]
    return FrontendError(f"the model has no {what} {name!r}", try_=", ".join(close))


def run(
    model: nn.Module, inputs: Sequence[Tensor], layers: Iterable[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The prediction, and the outputs of these layers; "" is the prediction."""
    placed = recorders(model, [layer for layer in layers if layer])
    try:
        output = prediction(model(*inputs))
        return output, {"": output, **{n: recorder.take() for n, (recorder, _) in placed.items()}}
    finally:
        for _, handle in placed.values():
            handle.remove()


def as_inputs(x: Any) -> tuple[Tensor, ...]:
    return tuple(map(torch.as_tensor, x if isinstance(x, (tuple, list)) else (x,)))
