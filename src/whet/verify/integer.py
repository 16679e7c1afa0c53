"""Compare a built integer program with its meaning: gradients with autograd, steps to the bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import CheckError, option
from ..frontend.torch.export import main_output
from ..ir import Array, Role
from ..ir.interp import interpret, is_open, run_exact
from ..ops.gradient_i8 import NarrowGradient
from ..pipeline import Options, as_compiled, assemble
from ..quantize.agreement import LEAST, correlation
from ..report.html import table
from ..runtime.arrays import accept, accept_labels, from_stored
from ..runtime.trainer import Trainer
from .check import Batches, compare, copies, options_here
from .straight_through import gradients

if TYPE_CHECKING:
    from ..emit.program import Program

TOLERANCE = 1e-5
NOTHING = 1e-12  # of the whole: a gradient whose addends cancel, but for rounding in float64
ROUGHLY = 12  # over the limit of integers that gradients are rounded to: their tolerance


@dataclass(frozen=True)
class IntegerReport:
    """Relative errors of gradients against autograd in float64, and steps that were equal."""

    gradients: dict[str, float]
    losses: list[tuple[float, float]]  # (NumPy, C) of every step
    tensors: int
    rounded: tuple[str, ...] = ()  # operators whose sums have no stated order
    function: float | None = None  # correlation of predictions with those of the float model

    @property
    def worst_gradient(self) -> tuple[str, float]:
        return max(self.gradients.items(), key=lambda item: item[1])

    @property
    def how(self) -> str:
        if not self.rounded:
            return "bit for bit"
        return f"but for rounding in {', '.join(self.rounded)}, step by step,"

    def __repr__(self) -> str:
        error = max(self.gradients.values())
        return (
            f"<IntegerReport: {len(self.gradients)} gradients agree, worst {error:.1e}; "
            f"{self.tensors} tensors equal {self.how} after {len(self.losses)} steps>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        name, error = self.worst_gradient
        gradients = f"{len(self.gradients)} agree with autograd; worst {error:.1e} ({name})"
        steps = f"{self.tensors} tensors equal the NumPy reference {self.how}"
        rows = [("gradients", gradients), (f"after {len(self.losses)} steps", steps)]
        return table("agreement of an integer program", rows)

    def __str__(self) -> str:
        name, error = self.worst_gradient
        steps = len(self.losses)
        lines = [
            f"{len(self.gradients)} gradients agree with torch.autograd through the same "
            f"straight-through graph; worst {error:.1e} ({name})",
            f"{self.tensors} tensors equal the NumPy reference {self.how} after {steps} steps",
            f"loss {self.losses[0][1]:.6f} -> {self.losses[-1][1]:.6f}",
        ]
        if self.function is not None:
            lines.append(
                f"predictions have a correlation of {self.function:.4f} with the float model's, on "
                "a batch of the calibration"
            )
        return "\n".join(lines)


def check_integers(program: Program, steps: int = 10) -> IntegerReport:
    """Raise CheckError unless the C program computes what the integer graph means.

    And unless that is about what the float model computes.
    """
    trainer = with_gradients(program).load()
    batches = Batches(program.source)
    errors = gradient_errors(trainer, batches.draw())
    allowed = tolerance(trainer.program)
    bad = {name: e for name, e in errors.items() if not e <= allowed}
    if bad:
        worst = [f"{name}: {e:.1e}" for name, e in sorted(bad.items(), key=lambda i: -i[1])]
        raise CheckError(f"{len(bad)} gradients differ from autograd's", why=worst[:10])
    own = runs_here(program).load()
    function = float_agreement(own)
    losses, tensors = equal_steps(own, [batches.draw() for _ in range(steps)])
    rounded = tuple(sorted(without_order(own.program)))
    return IntegerReport(errors, losses, tensors, rounded, function)


def float_agreement(trainer: Trainer) -> float | None:
    """The correlation of predictions with the float model's, if there is data to predict from."""
    program = trainer.program
    example = program.source.imported().example
    if example is None:
        return None
    (leaf,) = program.entries["predict"].leaves_of(Role.INPUT)
    stored = from_stored(example, program.tensors[leaf.name])
    x = torch.from_numpy(stored).to(program.source.inputs[0].dtype)  # ids were calibrated as floats
    with torch.no_grad():
        theirs = main_output(copies(program.source)[0].eval()(x))
    found = correlation([trainer.predict(x)], [theirs.numpy()])
    if not found >= LEAST:
        raise CheckError(
            "the integer program has lost the function of the float model",
            why=f"its predictions have a correlation of {found:.2f} with the model's, on a batch "
            f"of the calibration; {LEAST} is the least",
            try_=("other calibration data", f"a float program: {option('dtype', 'float32')}"),
        )
    return found


def tolerance(program: Program) -> float:
    """How far gradients may be from autograd's: by more if they are rounded on their way."""
    nodes = program.entries["gradients"].nodes
    limits = [n.attrs.limit for n in nodes if n.op is NarrowGradient]
    return ROUGHLY / min(limits) if limits else TOLERANCE


def without_order(program: Program) -> set[str]:
    """Float operators of the step whose bits are the library's or the compiler's."""
    nodes = program.entries["train_step"].nodes
    return {n.op.name for n in nodes if is_open(n.op)}


def with_gradients(program: Program) -> Program:
    """The same program with an entry point for its gradients."""
    if "gradients" in program.entries:
        return program
    return rebuilt(program, replace(options_here(program), accumulate=True, cache_prefix=False))


def runs_here(program: Program) -> Program:
    """The program itself, or, if its target is another machine, the same program for this one."""
    options = options_here(program)
    return program if options == program.options else rebuilt(program, options)


def rebuilt(program: Program, options: Options) -> Program:
    assert program.scheme is not None
    return assemble(program.source.imported(), program.scheme, options, program.source)


def gradient_errors(trainer: Trainer, batch: Any) -> dict[str, float]:
    """Of every trained tensor, on one batch, by its own size.

    Gradients for integers are as far apart as scales are: the whole is no measure for them.
    """
    program = trainer.program
    forward = as_compiled(program.source.imported(), program).training.graph
    _, truth = gradients(forward, feed_of(program, batch), list(program.trained))
    state = trainer.save()
    trainer.gradients(*batch)
    ours = trainer.collected()
    trainer.load(state)
    found: dict[str, Array] = {}
    for name, array in truth.items():
        whole = from_stored(array, program.tensors[name])
        view = program.views.get(name)
        found[name] = whole if view is None else view.reduce(whole)
    return compare(ours, found, NOTHING)


def equal(given: Array, right: Array) -> bool:
    return given.tobytes() == np.ascontiguousarray(right).tobytes()


def nearly(given: Array, right: Array) -> bool:
    """Floats to five digits of the whole; whole numbers but for one in a hundred, by 1."""
    apart = np.abs(given.astype(np.float64) - right.astype(np.float64))
    if right.dtype == np.float32:
        return bool(apart.max() <= 1e-4 * max(float(np.abs(right).max()), 1e-30))
    limit = 1 if right.dtype.itemsize == 1 else 1e-4 * max(float(np.abs(right).max()), 1e4)
    return bool(apart.max() <= limit and (right.dtype.itemsize > 1 or (apart > 0).mean() <= 0.02))


def feed_of(program: Program, batch: Any) -> dict[str, Array]:
    """A batch as the program's graphs store it."""
    inputs, label = batch
    step = program.entries["train_step"]
    leaves = step.leaves_of(Role.INPUT)
    feed = {
        leaf.name: accept(x, program.tensors[leaf.name], leaf.name, program.quants.get(leaf.name))
        for leaf, x in zip(leaves, inputs, strict=True)
    }
    return feed | accept_labels(program, step, label)


def equal_steps(trainer: Trainer, batches: list[Any]) -> tuple[list[tuple[float, float]], int]:
    """Train in C and in NumPy; every parameter and every state must have the same bits.

    With operators that are not defined to the bit, every step starts from the program's own
    numbers, and a few may end next to each other.
    """
    program = trainer.program
    step = program.entries["train_step"]
    rate = np.asarray(program.lr, np.float32)
    now: dict[str, Array] = {}
    losses = []
    same = nearly if without_order(program) else equal
    for i, batch in enumerate(batches):
        feed = {**feed_of(program, batch), **now, "lr": rate}
        (loss,), changed = interpret(step, feed, execute=run_exact)
        now |= changed
        losses.append((float(loss), trainer.step(*batch)))
        for name, array in changed.items():
            stored = trainer.stored(name).reshape(array.shape)
            now[name] = stored
            if not same(stored, array):
                count = int((stored != array).sum())
                raise CheckError(
                    f"{name} differs from its reference after {i + 1} steps",
                    why=f"{count} of {array.size} numbers",
                )
    return losses, len(now)
