"""`whet.compile`: a PyTorch model, a loss and an optimizer become a Program."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING

from . import training
from .emit.program import Program, TensorInfo
from .errors import FrontendError
from .frontend.importer import Imported
from .frontend.optim import default_optimizer
from .frontend.torch import Loss, check_inputs, import_model
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

    check_name(name)
    clip_norm = check_clip_norm(clip_norm)
    check_inputs(model, inputs)
    loss = loss if loss is not None else torch.nn.CrossEntropyLoss()
    optimizer = optimizer if optimizer is not None else default_optimizer(model)
    imported = import_model(model, inputs, loss, optimizer, target, clip_norm)
    forward = imported.training.graph
    entries: dict[str, Graph] = {"train_step": training.train_step(forward, imported.rules)}
    if accumulate:
        entries["gradients"] = training.gradients(forward, imported.rules)
        entries["apply"] = training.apply(forward, imported.rules, entries["gradients"])
    entries["predict"] = training.predict(imported.prediction.graph)
    return Program(
        name=name,
        entries=entries,
        tensors=tensors(imported.training, imported.prediction),
        outputs=tuple(TensorInfo(t.value.type, t.order) for t in imported.prediction.outputs),
        lr=imported.lr,
        source=Source(*copy.deepcopy((model, loss, optimizer)), inputs, target, clip_norm),
    )


C_TYPES = frozenset(
    f"{word}_t"
    for word in "size ptrdiff wchar max_align intptr uintptr intmax uintmax clock time div ldiv "
    "lldiv fpos float double int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
)


def check_name(name: str) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z_]\w*", name, re.ASCII | re.IGNORECASE):
        raise FrontendError(
            f"the program's name {name!r} is not a C identifier",
            try_="letters, digits and underscores, and no digit first",
        )
    if f"{name}_t" in C_TYPES:
        raise FrontendError(
            f"the program cannot be called {name!r}",
            why=f"its struct would be {name}_t, which is a type of C's own headers",
        )


def check_clip_norm(limit: float | None) -> float | None:
    if limit is not None and not 0 < float(limit) < float("inf"):
        raise FrontendError(f"clip_norm={limit} limits nothing", try_="a number above 0, or None")
    return None if limit is None else float(limit)


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
    """How PyTorch sees every tensor that it shares with the program, by name."""
    found: dict[str, TensorInfo] = {}
    for part in imported:
        for leaf in part.graph.leaves:
            if leaf.name in part.orders and leaf.role is not Role.CONST:
                found.setdefault(leaf.name, TensorInfo(leaf.type, part.orders[leaf.name]))
    return found
