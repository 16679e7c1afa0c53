"""Compare a built program with PyTorch: every gradient, and the parameters after some steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .api import Source, compile
from .emit.program import Program
from .errors import CheckError
from .frontend.torch import canonical_names, main_output
from .ir import Array
from .report import CheckReport

GRADIENT_TOLERANCE = 1e-4
PARAMETER_TOLERANCE = 1e-3
FLOOR = 1e-4  # tensors smaller than this share of the whole are measured against the whole


def check(program: Program, steps: int = 10) -> CheckReport:
    """Raise CheckError, naming the worst tensors, unless the C program trains as PyTorch does."""
    source: Source = program.source
    random = "rng" in program.storage.state
    notes = ("dropout was switched off on both sides for this comparison",) if random else ()
    with without_dropout() if random else nullcontext():
        return CheckReport(**_compare(program, source, steps), notes=notes)


def _compare(program: Program, source: Source, steps: int) -> dict[str, Any]:
    model, loss, optimizer = copy.deepcopy((source.model, source.loss, source.optimizer))
    twin = compile(
        model, source.inputs, loss=loss, optimizer=optimizer, target=source.target,
        accumulate=True, clip_norm=source.clip_norm, name=program.name,
    )  # fmt: skip
    trainer = twin.load()
    batches = Batches(source, model)
    gradients = _gradients(trainer, model, loss, batches)
    losses = [
        (_torch_step(model, loss, optimizer, source.clip_norm, x, y), trainer.step(x, y))
        for x, y in (batches.draw() for _ in range(steps))
    ]
    theirs = {n: t.detach().numpy() for n, t in model.state_dict().items()}
    parameters = compare(trainer.arrays(), theirs)
    fail_above("gradients", gradients, GRADIENT_TOLERANCE)
    fail_above(f"tensors after {steps} steps", parameters, PARAMETER_TOLERANCE)
    return {"gradients": gradients, "parameters": parameters, "losses": losses}


def _gradients(trainer: Any, model: nn.Module, loss: Any, batches: Batches) -> dict[str, float]:
    """One batch through both sides; running statistics are put back afterwards."""
    x, y = batches.draw()
    start, state = copy.deepcopy(model.state_dict()), trainer.save()
    model.zero_grad()
    loss(main_output(model(*x)), y).backward()
    names = canonical_names(model)
    theirs = {
        names[f"model.{n}"]: p.grad.numpy()
        for n, p in model.named_parameters()
        if p.grad is not None
    }
    trainer.gradients(x, y)
    ours = trainer.collected()
    trainer.load(state)
    model.load_state_dict(start)
    model.zero_grad()
    return compare(ours, theirs)


def _torch_step(
    model: nn.Module, loss: Any, optimizer: Any, clip_norm: float | None, x: Any, y: Any
) -> float:
    optimizer.zero_grad()
    value = loss(main_output(model(*x)), y)
    value.backward()
    if clip_norm is not None:
        params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        torch.nn.utils.clip_grad_norm_(params, clip_norm)
    optimizer.step()
    return value.item()


def compare(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> dict[str, float]:
    """Relative error of every tensor; a tensor that is nearly zero is measured by the whole."""
    shared = [n for n in ours if n in theirs]
    whole = float(np.sqrt(sum(float((theirs[n].astype(np.float64) ** 2).sum()) for n in shared)))
    errors = {}
    for name in shared:
        reference = theirs[name].astype(np.float64)
        size = max(float(np.linalg.norm(reference)), FLOOR * whole, 1e-30)
        errors[name] = float(np.linalg.norm(ours[name].astype(np.float64) - reference)) / size
    return errors


def fail_above(what: str, errors: Mapping[str, float], tolerance: float) -> None:
    bad = sorted((e, n) for n, e in errors.items() if not e <= tolerance)
    if bad:
        raise CheckError(
            f"{len(bad)} of {len(errors)} {what} differ from PyTorch by more than {tolerance:g}",
            why=[f"{n}: {e:.1e}" for e, n in reversed(bad[-10:])],
        )


class Batches:
    """Random batches shaped like the example; integers are the example's own, shuffled."""

    def __init__(self, source: Source, model: nn.Module) -> None:
        self.source, self.model = source, model
        self.generator = torch.Generator().manual_seed(0)

    def draw(self) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        inputs = tuple(self.like(x) for x in self.source.inputs)
        return inputs, self.target(inputs)

    def like(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            return torch.randn(x.shape, generator=self.generator)
        order = torch.randperm(x.numel(), generator=self.generator)
        return x.reshape(-1)[order].reshape(x.shape)

    def target(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if self.source.target is not None:
            return self.like(self.source.target)
        with torch.no_grad():
            shape = main_output(copy.deepcopy(self.model).eval()(*inputs)).shape
        if isinstance(self.source.loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
            labels = (shape[0], *shape[2:]) if len(shape) > 1 else ()
            return torch.randint(0, shape[min(1, len(shape) - 1)], labels, generator=self.generator)
        return torch.rand(shape, generator=self.generator)


@contextmanager
def without_dropout() -> Iterator[None]:
    """PyTorch's functional dropout does nothing, for tracing and running alike."""
    attention = F.scaled_dot_product_attention

    def keep(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return x

    def attend(*args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("dropout_p", None)
        return attention(*((*args[:4], 0.0, *args[5:]) if len(args) > 4 else args), **kwargs)

    patches: dict[str, Callable[..., Any]] = {
        name: keep for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
    }
    patches["scaled_dot_product_attention"] = attend
    saved = {name: getattr(F, name) for name in patches}
    try:
        for name, function in patches.items():
            setattr(F, name, function)
        yield
    finally:
        for name, function in saved.items():
            setattr(F, name, function)
