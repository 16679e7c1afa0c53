"""What an attacker sees of a training step, and the same gradients computed in PyTorch.

The attacker knows the model, its weights, the loss and the shape of a batch, as any server of
federated learning does, and sees the gradients that the program would send.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...errors import DataError
from ...runtime.steps import along, trained
from .recovered import Array

if TYPE_CHECKING:
    from ... import Program

# Axis and indices of what trains, None as an axis: of all elements; None: all of it.
Part = tuple[int | None, tuple[int, ...]] | None
Differentiable = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Observation:
    """One update as it is sent.

    `gradients` are float32, by PyTorch's names and in its axis order. What does not train is not
    there; of a parameter that trains in part, only that slice is, and `parts` says which. `masks`
    are True where a sparsifying defence left a coordinate standing, for those it was applied to.
    `noise` is the standard deviation of what was added and `scaled` says that they were clipped:
    defences are public, so an adaptive attacker knows both.
    """

    gradients: Mapping[str, Array]
    model: nn.Module
    loss: Any
    shape: tuple[int, ...]  # of the input, with the batch
    classes: int  # of the model's output
    parts: Mapping[str, Part] = field(default_factory=dict)
    masks: Mapping[str, Array] = field(default_factory=dict)
    span: tuple[float, float] = (0.0, 1.0)  # what black and white are in the model's input
    noise: float = 0.0
    scaled: bool = False

    @property
    def batch(self) -> int:
        return self.shape[0]

    @property
    def coordinates(self) -> int:
        """How many numbers it tells."""
        sizes = {n: g.size for n, g in self.gradients.items()}
        return sum(int(self.masks[n].sum()) if n in self.masks else s for n, s in sizes.items())

    def defended(
        self,
        gradients: Mapping[str, Array],
        masks: Mapping[str, Array] | None = None,
        *,
        noise: float = 0.0,
        scaled: bool = False,
    ) -> Observation:
        """The same step seen through a defence."""
        for name, gradient in gradients.items():
            if gradient.shape != self.gradients[name].shape:
                raise DataError(
                    f"the gradient of {name} has shape {gradient.shape}",
                    why=f"what trains of it has shape {self.gradients[name].shape}",
                )
        sent = {name: gradient.astype(np.float32) for name, gradient in gradients.items()}
        return replace(self, gradients=sent, masks=dict(masks or {}), noise=noise, scaled=scaled)


def observe(
    program: Program,
    x: Any,
    y: Any,
    *,
    model: nn.Module | None = None,
    loss: Any = None,
    span: tuple[float, float] = (0.0, 1.0),
    checkpoint: bytes | None = None,
) -> Observation:
    """The gradients of one batch as the built program computes them.

    The program is compiled with accumulate=True. `model` and `loss` are those it was compiled
    from, if it does not remember them. `checkpoint`, of `trainer.save()`, has the parameters that
    it has trained so far; without it they are those it was compiled with. For an int8 program the
    attacker's model has the numbers that its trained integers stand for.
    """
    source = program.source
    if source is None and (model is None or loss is None):
        raise DataError(
            "this program does not remember the model it was compiled from",
            try_="observe(program, x, y, model=..., loss=...)",
        )
    trainer = program.load()
    if checkpoint is not None:
        trainer.load(checkpoint)
    before = trainer.collected(real=True)  # a checkpoint may hold a sum that was not yet applied
    trainer.gradients(x, y)
    sums = trainer.collected(real=True)
    found = {n: unfolded(program, n, g - before[n]) for n, g in sums.items()}
    known = copy.deepcopy(source.model if model is None else model)
    known.load_state_dict(trainer.state_dict(), strict=False)
    for parameter in known.parameters():
        parameter.requires_grad_(True)
    return Observation(
        gradients=found,
        model=known,
        loss=source.loss if loss is None else loss,
        shape=tuple(int(n) for n in np.shape(x)),
        classes=int(program.outputs[0].shape[-1]),
        parts={n: program.trained[n] for n in found},
        span=span,
    )


def unfolded(program: Program, name: str, gradient: Array) -> Array:
    """With regard to the parameter as PyTorch has it, before a batch norm became part of it."""
    return (gradient * fold_of(program, name)).astype(np.float32)


def fold_of(program: Program, name: str) -> Array:
    """What a batch norm that became part of a parameter multiplies it by, or what trains of it."""
    fold = program.folds.get(name)
    if fold is None:
        return np.ones(1)
    own = next((n for n, part in program.parts.items() if part.parameter == name), name)
    return along(program, own, trained(program.integer_rules.units[own], fold.scale))


class Matching:
    """Gradients of a dummy batch, sliced and masked as those observed, in one vector."""

    def __init__(
        self, observation: Observation, *, masked: bool = True, dtype: torch.dtype = torch.float32
    ) -> None:
        self.model = copy.deepcopy(observation.model).to(dtype)
        self.forward: Callable[[Tensor], Tensor] = self.model
        self.loss = observation.loss
        named = dict(self.model.named_parameters())
        if missing := observation.gradients.keys() - named.keys():
            raise DataError(f"the model has no parameter {', '.join(sorted(missing))}")
        for name, parameter in named.items():
            parameter.requires_grad_(name in observation.gradients)
        self.parameters = [named[name] for name in observation.gradients]
        self.places = [
            place(named[name].shape, observation.parts.get(name),
                  observation.masks.get(name) if masked else None)
            for name in observation.gradients
        ]  # fmt: skip
        seen = []
        for name, gradient in observation.gradients.items():
            mask = observation.masks.get(name) if masked else None
            seen.append(gradient.ravel() if mask is None else gradient[mask])
        self.target = torch.from_numpy(np.concatenate(seen)).to(dtype)

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Differentiable with regard to `x` and to `y`, which are classes or probabilities."""
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no second derivative
            loss = self.loss(self.forward(x), y)
        found = torch.autograd.grad(loss, self.parameters, create_graph=True)
        flat = [g.reshape(-1) for g in found]
        return torch.cat([g if p is None else g[p] for g, p in zip(flat, self.places, strict=True)])

    def sections(self) -> list[int]:
        """How many coordinates each parameter has in the vector."""
        sizes = zip(self.parameters, self.places, strict=True)
        return [p.numel() if place is None else len(place) for p, place in sizes]


def differentiable(observation: Observation, *, masked: bool = True) -> Differentiable:
    """The observed gradients as a function of a dummy batch, for optimisers of your own."""
    return Matching(observation, masked=masked).gradients


def place(shape: torch.Size, part: Part, mask: Array | None) -> Tensor | None:
    """Where the observed coordinates lie in a flat parameter; None for all of it in order."""
    if part is None and mask is None:
        return None
    index = np.arange(shape.numel()).reshape(tuple(shape))
    if part is not None:
        index = np.take(index, part[1], axis=part[0])
    if mask is not None:
        index = index[mask]
    return torch.from_numpy(np.ascontiguousarray(index).ravel())


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
