"""A PyTorch model that was compiled, with its loss, its optimizer and an example."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import FrontendError, either, option, warn
from .frontend.model import Model
from .frontend.torch.choices import loss_of, optimizer_of
from .frontend.torch.export import (
    Loss,
    Target,
    check_inputs,
    check_labels,
    each,
    import_model,
)
from .frontend.torch.halves import single, widen
from .frontend.torch.masks import copied
from .ir.quant import Recipe
from .passes import check_switches
from .pipeline import assemble, imported
from .quantize import Int8
from .quantize.calibrate import not_calibrated
from .quantize.model import integer_model
from .scheme import Scheme, parameters_of, preset
from .settings import check_clip_norm, known_update
from .verify.check import check
from .verify.integer import check_integers

if TYPE_CHECKING:
    import torch

    from .emit.program import Program
    from .report import CheckReport
    from .verify.integer import IntegerReport


def check_lengths(lengths: Sequence[int], inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """The lengths below that of the example's sequences."""
    if isinstance(lengths, (int, str)):
        raise FrontendError(f"lengths={lengths!r} is not a tuple of lengths", try_="lengths=(64,)")
    if not lengths:
        return ()
    if inputs[0].ndim != 2 or inputs[0].is_floating_point():
        raise FrontendError(
            f"{option('lengths')} is for sequences of ids",
            why=f"the first input has shape {tuple(inputs[0].shape)}, not [batch, length]",
        )
    whole = inputs[0].shape[1]
    for length in lengths:
        if (
            isinstance(length, bool)
            or not isinstance(length, (int, np.integer))
            or not 1 < length <= whole
        ):
            raise FrontendError(
                f"{length!r} is not a length of sequences up to that of the example, {whole}",
                try_="an example as long as the longest",
            )
    return tuple(sorted({*map(int, lengths)} - {whole}))


class Source:
    """What a program is compiled from, kept so that `check` can compare with PyTorch."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Loss | str | None,
        optimizer: torch.optim.Optimizer | str | None,
        inputs: tuple[torch.Tensor, ...],
        labels: Target | None,
        clip_norm: float | None,
        int8: Int8 | None = None,
        calibrate: Iterable[Any] | None = None,
        lengths: Sequence[int] = (),
        moments: str | None = None,
    ) -> None:
        check_inputs(model, inputs)
        check_labels(labels)
        parts = model, loss_of(loss), optimizer_of(optimizer, model)
        self.model, self.loss, self.optimizer = copied(parts, model)
        widen(self.model, self.optimizer)
        for group in self.optimizer.param_groups if moments else ():
            group["moments"] = moments
        self.inputs, self.labels = tuple(map(single, inputs)), each(labels, single)
        self.clip_norm = check_clip_norm(clip_norm)
        self.int8, self.calibrate = int8, calibrate
        self.lengths = check_lengths(lengths, self.inputs)
        self.recipe: Recipe | None = getattr(model, "whet_recipe", None)
        self.integers: Model | None = None
        if int8 is not None and any(p.is_meta for p in model.parameters()):
            raise FrontendError(
                f"{option('dtype', 'int8')} needs the values of the weights",
                why="the model is on the meta device, and ranges are found by running it",
                try_="a model with weights, even random ones, to look at memory",
            )
        if int8 is None:
            if calibrate is not None:
                hint = option("dtype", "int8")
                raise FrontendError("a float program needs no calibration", try_=hint)
            return
        if calibrate is None and self.recipe is None:
            raise not_calibrated("nothing is known about the range of its activations")
        if model.training:
            words = "batch norm is folded and nothing drops at random"
            by = either("model.eval()", "--eval")
            warn(f"an int8 program is compiled in eval mode: {words}; {by} says so")
            self.model.eval()

    @property
    def batch(self) -> int:
        """Samples in the example, if that is what the first axis of all inputs counts."""
        sizes = {len(x) if x.ndim else 1 for x in self.inputs}
        return sizes.pop() if len(sizes) == 1 else 1

    def read(self, batch: int | None = None, length: int | None = None) -> Model:
        """The model in floats; for the first samples of the example alone if `batch` says so, or
        for the first positions of its sequences."""
        inputs, labels = self.inputs, self.labels
        if length is not None:
            whole = inputs[0].shape[1]

            def cut(x: torch.Tensor) -> torch.Tensor:
                return x[:, :length] if x.ndim > 1 and x.shape[1] == whole else x

            inputs, labels = tuple(map(cut, inputs)), each(labels, cut)
        if batch is not None:
            inputs = tuple(x[:batch] for x in inputs)
            labels = each(labels, lambda x: x[:batch])
        parts = (self.model, inputs, self.loss, self.optimizer, labels, self.clip_norm)
        return import_model(*parts)

    def with_batch(self, size: int, recipe: Recipe | None) -> Model:
        """The model for a smaller batch, with integers as they were calibrated before."""
        smaller = self.read(size)
        return smaller if self.int8 is None else integer_model(smaller, self.int8, None, recipe)

    def imported(self) -> Model:
        """The model to compile, quantized if `int8` is set."""
        if self.int8 is None:
            shorter = {length: self.read(length=length) for length in self.lengths}
            return replace(imported(self), shorter=shorter)
        if self.integers is None:  # once: the calibration data may be readable only once
            self.integers = imported(self)
        return self.integers

    def by_scheme(self, program: Program, update: str | Scheme) -> Program:
        """The program of the same model by another scheme, with nothing computed twice."""
        model, options = self.imported(), replace(program.options, recompute=None)
        scheme = known_update(update)
        if not isinstance(scheme, Scheme):
            scheme = preset(scheme, parameters_of(model.training.graph))
        return assemble(model, scheme, options, self)

    def without(self, program: Program, passes: Collection[str]) -> dict[str, Program]:
        """The same program with one of these passes left out at a time."""
        assert program.scheme is not None
        left_out = {name: check_switches([name]) for name in passes}
        model, scheme = self.imported(), program.scheme
        skipped = program.options.without
        return {
            name: assemble(model, scheme, replace(program.options, without=skipped | names), self)
            for name, names in left_out.items()
        }

    def check(self, program: Program, steps: int) -> CheckReport | IntegerReport:
        """Compare a program of this model with PyTorch, or its integers with NumPy."""
        return check_integers(program, steps) if program.integer else check(program, steps)
