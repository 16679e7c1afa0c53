"""From a forward graph with a loss to the entry points of a program that trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .autodiff import backward, loss_seed
from .errors import FrontendError
from .ir import Array, Builder, Graph, Op, Role, Value, f32, prune, verify
from .ops.binary import Add, Mul
from .ops.update import Adam, ClipScale, CountStep, Fill, Sgd, SgdMomentum, SumSquares


@dataclass(frozen=True)
class Rule:
    """How one parameter is updated: an optimizer operator, its attributes and initial state.

    `step` is the number of steps taken before; Adam corrects its bias by it.
    """

    op: type[Op]
    attrs: Mapping[str, Any]
    state: Mapping[str, Array] = field(default_factory=dict)  # by suffix: "momentum", "mean", ...
    step: float = 0.0

    @property
    def moments(self) -> tuple[str, ...]:
        return {Sgd: (), SgdMomentum: ("momentum",), Adam: ("mean", "square")}[self.op]


@dataclass(frozen=True)
class Training:
    """Everything that decides a training step besides the model itself."""

    rules: Mapping[str, Rule]
    clip_norm: float | None = None


class _Updater:
    """Collects gradients, then appends the updates; the pass `reorder` moves them to where a
    gradient is complete."""

    def __init__(self, b: Builder, training: Training) -> None:
        self.b, self.training = b, training
        self.lr = b.leaf("lr", f32(), Role.SCALAR)
        self.waiting: list[tuple[Value, Value]] = []
        self.start = 0.0
        self.count: Value | None = None

    def __call__(self, param: Value, grad: Value) -> None:
        self.waiting.append((param, grad))

    def finish(self) -> None:
        for param, grad in self.clipped():
            self.update(param, grad)

    def clipped(self) -> list[tuple[Value, Value]]:
        limit = self.training.clip_norm
        if limit is None or not self.waiting:
            return self.waiting
        b = self.b
        total = b.emit(SumSquares, self.waiting[0][1], name="grad_norm")
        for _, grad in self.waiting[1:]:
            total = b.emit(Add, total, b.emit(SumSquares, grad), name="grad_norm")
        scale = b.emit(ClipScale, total, name="clip", limit=limit)
        return [(p, b.emit(Mul, grad, scale, name=grad.name)) for p, grad in self.waiting]

    def update(self, param: Value, grad: Value) -> None:
        b, rule = self.b, self.training.rules[param.name]
        moments = [
            b.leaf(
                f"{param.name}.{suffix}",
                param.type,
                Role.STATE,
                rule.state.get(suffix, np.zeros(param.shape, np.float32)),
            )
            for suffix in rule.moments
        ]
        clock = [self.clock(rule.step)] if rule.op is Adam else []
        operands = (param, grad, *moments, *clock, self.lr)
        results = b.emit_all(rule.op, *operands, name=f"{param.name}.next", **rule.attrs)
        for leaf, nxt in zip((param, *moments), results, strict=True):
            b.update(leaf, nxt)

    def clock(self, start: float) -> Value:
        """The number of the current step, counted once for all parameters."""
        if self.count is not None and start != self.start:
            raise FrontendError(
                "parameters have taken different numbers of steps",
                why=f"some {self.start:g}, others {start:g}; a program counts once for all",
                try_="let the optimizer start afresh, or train the same parameters as before",
            )
        if self.count is None:
            self.start = start
            leaf = self.b.leaf("optimizer.step", f32(), Role.STATE, np.asarray(start))
            self.count = self.b.emit(CountStep, leaf, name="optimizer.step.next")
            self.b.update(leaf, self.count)
        return self.count


def _differentiated(
    forward: Graph, name: str, make: Callable[[Builder], Any], trained: list[str]
) -> tuple[Builder, Any]:
    """Forward, then backward with `make(b)` receiving gradients, then the forward's own state.

    State that the forward pass changes (running statistics, the random counter) is computed last,
    so that a step that is abandoned because its loss is not finite has changed nothing.
    """
    bare = Graph(forward.name, forward.leaves, forward.nodes, forward.outputs, (), forward.data)
    values = prune(bare)
    b = Builder.extend(forward, name)
    b.nodes, b.state = list(values.nodes), []
    loss = forward.outputs[0]
    on_gradient = make(b)
    params = [v for v in forward.leaves if v.role is Role.PARAM and v.name in trained]
    backward(b, values, {loss: loss_seed(b, loss)}, params, on_gradient)
    done = set(values.nodes)
    b.nodes += [n for n in forward.nodes if n not in done]
    b.state = list(forward.state) + b.state
    return b, on_gradient


def train_step(forward: Graph, training: Training) -> Graph:
    """One step: forward, backward, update. The only output is the loss."""

    def make(b: Builder) -> _Updater:
        return _Updater(b, training)

    b, updater = _differentiated(forward, "train_step", make, list(training.rules))
    updater.finish()
    if not any(leaf.name in training.rules for leaf, _ in b.state):
        raise FrontendError(
            "there is nothing to train", why="the loss depends on no parameter that is trained"
        )
    return b.finish(forward.outputs[:1])


def gradients(forward: Graph, training: Training) -> Graph:
    """Forward and backward; every gradient is added to a buffer `<parameter>.grad`."""

    def make(b: Builder) -> Callable[[Value, Value], None]:
        def accumulate(param: Value, grad: Value) -> None:
            total = b.leaf(f"{param.name}.grad", param.type, Role.STATE, np.zeros(param.shape))
            b.update(total, b.emit(Add, total, grad, name=f"{total.name}.next"))

        return accumulate

    b, _ = _differentiated(forward, "gradients", make, list(training.rules))
    return b.finish(forward.outputs[:1])


def apply(forward: Graph, training: Training, collected: Graph) -> Graph:
    """Update every parameter from its gradient buffer, times `scale`, and clear the buffers.

    `collected` is the entry point that fills the buffers.
    """
    b = Builder("apply")
    reached = {leaf.name for leaf, _ in collected.state}
    pairs: list[tuple[Value, Value]] = []
    for leaf in forward.leaves:
        if leaf.role is Role.PARAM and f"{leaf.name}.grad" in reached:
            param = b.leaf(leaf.name, leaf.type, Role.PARAM, forward.data[leaf.name])
            zero = np.zeros(leaf.shape, np.float32)
            pairs.append((param, b.leaf(f"{leaf.name}.grad", leaf.type, Role.STATE, zero)))
    updater = _Updater(b, training)
    scale = b.leaf("scale", f32(), Role.SCALAR)
    for param, total in pairs:
        updater(param, b.emit(Mul, total, scale, name=f"d.{param.name}"))
    updater.finish()
    for _, total in pairs:
        b.update(total, b.emit(Fill, name=f"{total.name}.next", shape=total.shape))
    return b.finish(())


def predict(forward: Graph) -> Graph:
    """The model alone: no label, no loss, no state."""
    graph = prune(replace(forward, name="predict", state=()))
    verify(graph)
    return graph
