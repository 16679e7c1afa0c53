"""Measure every kernel call of some training steps on this machine."""

from __future__ import annotations

import ctypes

import numpy as np

from ..emit.c_trace import UNIT
from ..emit.program import Program
from ..errors import InternalError
from ..ir import Array, DType, Role
from ..report.program import kernel_calls
from ..report.trace import Slice, Timeline
from .trainer import Trainer

WARMUP = 2  # steps whose times are not kept


def made_up(program: Program) -> dict[str, Array]:
    """Noise and zeros for a training step, as they are stored: times do not depend on values."""
    noise, found = np.random.default_rng(0), {}
    for leaf in program.entries["train_step"].leaves_of(Role.INPUT, Role.LABEL):
        array: Array = np.zeros(leaf.shape, leaf.type.dtype.numpy)
        if leaf.role is Role.INPUT and leaf.type.dtype is DType.F32:
            array = noise.normal(size=leaf.shape).astype(np.float32)
        found[leaf.name] = array
    return found


class TracingTrainer(Trainer):
    """A trainer whose program notes when each kernel call of a step began and ended."""

    unit = UNIT

    def trace(self, feed: dict[str, Array]) -> Array:
        """One step that changes no parameter: pairs of nanoseconds, for each call."""
        times = np.zeros(2 * len(kernel_calls(self.program.plans["train_step"])), np.int64)
        read = self._function("trace", ctypes.c_int32)
        pointer = times.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        read(pointer)  # forget what other entry points called
        self._run("train_step", feed, {"lr": 0.0})
        if (count := read(pointer)) != len(times):
            raise InternalError(f"{count} of {len(times)} times were taken")
        return times.reshape(-1, 2)


def timeline(program: Program, steps: int) -> Timeline:
    """Some steps on one thread, after a few to warm up."""
    trainer = TracingTrainer(program, threads=1)
    feed = made_up(program)
    nodes = [n for n in program.plans["train_step"].graph.nodes if n.op.call(n) is not None]
    found = []
    for number in range(WARMUP + steps):
        times = trainer.trace(feed)
        if number >= WARMUP:
            pairs = zip(nodes, times.tolist(), strict=True)
            found.append(tuple(Slice(n, begin, end - begin) for n, (begin, end) in pairs))
    return Timeline(tuple(found), "nanoseconds")
