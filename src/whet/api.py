"""`whet.compile`: a PyTorch model, a loss and an optimizer become a Program."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from . import training
from .emit.program import Program, TensorInfo
from .frontend.importer import Imported
from .frontend.torch import Loss, import_model
from .ir import Graph, Role

if TYPE_CHECKING:
    import torch


def compile(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    target: torch.Tensor | None = None,
    accumulate: bool = False,
    clip_norm: float | None = None,
    name: str = "net",
) -> Program:
    """A program that trains `model` exactly as PyTorch would, on batches shaped like `inputs`.

    The loss defaults to cross-entropy and the optimizer to plain SGD. `model.train()` or
    `.eval()` decides about batch norm and dropout; prediction always behaves as in eval mode.
    Parameters train if they require a gradient and are in the optimizer. `target` is an example
    of what the loss compares with, needed only for losses whet does not know. `accumulate` adds
    the entry points `gradients` and `apply`; `clip_norm` limits the norm of all gradients.
    """
    import torch

    loss = loss if loss is not None else torch.nn.CrossEntropyLoss()
    if optimizer is None:
        trainable = [p for p in model.parameters() if p.requires_grad] or list(model.parameters())
        optimizer = torch.optim.SGD(trainable, lr=0.01)
    imported = import_model(model, inputs, loss, optimizer, target, clip_norm)
    forward = imported.training.graph
    entries: dict[str, Graph] = {"train_step": training.train_step(forward, imported.rules)}
    if accumulate:
        entries["gradients"] = training.gradients(forward, imported.rules)
        entries["apply"] = training.apply(forward, imported.rules)
    entries["predict"] = training.predict(imported.prediction.graph)
    return Program(
        name=name,
        entries=entries,
        tensors=tensors(imported.training, imported.prediction),
        lr=imported.lr,
        source=Source(*copy.deepcopy((model, loss, optimizer)), inputs, target, clip_norm),
    )


class Source:
    """What a program was compiled from, kept so that `check` can compare with PyTorch."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        inputs: tuple[torch.Tensor, ...],
        target: torch.Tensor | None,
        clip_norm: float | None,
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.inputs, self.target, self.clip_norm = inputs, target, clip_norm


def tensors(*imported: Imported) -> dict[str, TensorInfo]:
    """How PyTorch sees every tensor that crosses the program's border."""
    found: dict[str, TensorInfo] = {}
    for part in imported:
        for leaf in part.graph.leaves:
            if leaf.name in part.orders and leaf.role is not Role.CONST:
                found.setdefault(leaf.name, TensorInfo(leaf.type, part.orders[leaf.name]))
    prediction: Any = imported[-1]
    for i, t in enumerate(prediction.outputs):
        found[output_name(i, len(prediction.outputs))] = TensorInfo(t.value.type, t.order)
    return found


def output_name(i: int, count: int) -> str:
    return "output" if count == 1 else f"output_{i}"
