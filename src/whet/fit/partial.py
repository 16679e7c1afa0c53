"""A batch of fewer samples than a program takes, made into whole ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..emit.program import Program
from ..errors import DataError
from ..ir import Role
from ..ops.norm import BatchNormTrain
from ..runtime.ids import look_ups
from .data import Batch

if TYPE_CHECKING:
    from ..runtime import Trainer

WAYS = ("auto", "wrap", "drop")


class Filling:
    """Whole batches that stand for m samples, of which there are fewer than a batch has.

    With "auto", training on them is training on a batch of just these samples:

    - If the loss averages over labels that count, the others are labelled to be ignored.
    - If m divides the batch size, each sample is in the batch equally often. Otherwise each is
      equally often in several batches whose gradients are averaged, for which the program needs
      `accumulate`; `several` says that their losses are enough.

    Where neither is possible, and with "wrap", the first samples of the epoch fill the batch up.
    """

    def __init__(self, program: Program, way: str, several: bool) -> None:
        if way not in WAYS:
            raise DataError(f"partial={way!r} is unknown", try_=" or ".join(map(repr, WAYS)))
        self.size, self.way, self.several = program.batch, way, several
        nodes = program.entries["train_step"].nodes
        mixing = any(node.op is BatchNormTrain for node in nodes)
        self.apart = program.independent and not mixing and way == "auto"
        self.ignored = ignored_label(program) if self.apart else None

    @classmethod
    def for_training(cls, trainer: Trainer, way: str) -> Filling:
        return cls(trainer.program, way, trainer._has("gradients") and trainer._has("apply"))

    def whole(self, batch: Batch, opening: Callable[[], Batch]) -> list[Batch]:
        """Batches to train on with the mean of their gradients; none if this one is left out."""
        count = len(batch)
        if count == self.size:
            return [batch]
        if count > self.size or not count:
            raise DataError(
                f"a batch has {count} samples, the program was compiled for {self.size}",
                try_=f"batches of {self.size}, or two arrays, which are divided into batches",
            )
        if len(counts := {len(a) if a.ndim else 0 for a in (*batch.inputs, *batch.labels)}) > 1:
            raise DataError(f"inputs and labels differ in number: {sorted(counts)}")
        if self.way == "drop":
            return []
        if self.ignored is not None:
            return [padded(batch, self.size, self.ignored)]
        times = count // math.gcd(count, self.size)
        if self.apart and (times == 1 or self.several):
            rows = np.arange(times * self.size) % count
            return [batch.take(part) for part in rows.reshape(times, self.size)]
        others = opening()
        rows = np.arange(self.size - count) % len(others)
        return [batch.followed_by(others.take(rows))]


def padded(batch: Batch, size: int, ignored: int) -> Batch:
    rows = np.arange(size) % len(batch)
    full = batch.take(rows)
    (labels,) = full.labels
    labels[len(batch) :] = ignored  # `take` made a copy
    return full


def ignored_label(program: Program) -> int | None:
    """The label that does not count, if the loss is a mean over all others and nothing else."""
    step = program.entries["train_step"]
    labels = step.leaves_of(Role.LABEL)
    loss = next(node for node in step.nodes if step.outputs[0] in node.outs)
    exempt = {number for _, number in loss.op.bounds(loss).values() if number < 0}
    looked = any(look.name == labels[0].name for look in look_ups(step, {})) if labels else False
    if len(labels) != 1 or not looked or len(exempt) != 1:
        return None
    return exempt.pop()
