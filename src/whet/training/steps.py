"""From a forward graph with a loss to the entry points of a program that trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import FrontendError
from ..ir import (
    Array,
    Builder,
    DType,
    Graph,
    Link,
    Op,
    Relation,
    Role,
    Type,
    Value,
    f32,
    prune,
    verify,
)
from ..ops._bf16 import nearest
from ..ops.binary import Add, Mul
from ..ops.bits import BitsDx
from ..ops.optimizers import Optimizer
from ..ops.random import RngNext
from ..ops.settle import RealSquares, Settle, SettleMaster
from ..ops.update import ClipScale, CountStep, Fill, Moment, SumSquares
from .autodiff import backward, loss_seed

CARRIES = {"carry8": DType.I8, "carry16": DType.I16}


@dataclass(frozen=True)
class UpdateRule:
    """How one parameter is updated: an optimizer, its attributes and its initial state.

    `step` is the number of steps taken before, for an optimizer that counts them.
    """

    optimizer: Optimizer
    attrs: Mapping[str, Any]
    state: Mapping[str, Array] = field(default_factory=dict)  # by the name of the moment
    step: float = 0.0

    @property
    def op(self) -> type[Op]:
        return self.optimizer.update

    @property
    def moments(self) -> tuple[Moment, ...]:
        return self.optimizer.moments(self.attrs)

    @property
    def kept(self) -> DType:
        """What the moments are stored as."""
        update = self.optimizer.update
        return update.kept(update.Attrs(**self.attrs))


@dataclass(frozen=True)
class Unit:
    """An integer parameter: one step of it is scale[c] * unit of the real one, c along `axis`."""

    scale: str  # the name of a constant of the forward graph
    unit: float
    axis: int
    channels: tuple[int, ...] | None = None  # that the parameter has of those of the scale


@dataclass(frozen=True)
class IntegerRules:
    """How integer parameters train: in which units, how a fraction becomes whole, and what the
    gradients of their layers are made of."""

    units: Mapping[str, Unit] = field(default_factory=dict)
    rounding: str = "nearest"
    qas: bool = True
    seed: int = 0
    gradients: str = "float32"


@dataclass(frozen=True)
class Training:
    """Everything that decides a training step besides the model itself."""

    rules: Mapping[str, UpdateRule]
    clip_norm: float | None = None
    integer_rules: IntegerRules = IntegerRules()
    masks: Mapping[str, Array] = field(default_factory=dict)  # bits of elements that train


SUFFIX = {  # of the names of a parameter's companions
    Relation.GRADIENT_SUM: "grad",
    Relation.MASTER: "master",
    Relation.CARRY: "carry",
}


def companion(b: Builder, param: Value, relation: Relation, kind: Type, data: Array) -> Value:
    """State that belongs to a parameter."""
    name, link = f"{param.name}.{SUFFIX[relation]}", Link(relation, param.name)
    return b.leaf(name, kind, Role.STATE, data, link)


def gradient_sum(b: Builder, param: Value) -> Value:
    zero = np.zeros(param.shape, np.float32)
    return companion(b, param, Relation.GRADIENT_SUM, f32(*param.shape), zero)


def cotangent(b: Builder, param: Value, grad: Value, scale: Value, name: str) -> Value:
    """The gradient of a parameter, times a number."""
    b.link = Link(Relation.COTANGENT, param.name)
    scaled = b.emit(Mul, grad, scale, name=name)
    b.link = None
    return scaled


class _Updater:
    """Collects gradients, then appends the updates; the pass `reorder` moves them to where a
    gradient is complete."""

    def __init__(self, b: Builder, training: Training) -> None:
        self.b, self.training = b, training
        self.lr = b.leaf("lr", f32(), Role.SCALAR)
        self.waiting: list[tuple[Value, Value]] = []
        self.start = 0.0
        self.count: Value | None = None
        self.rng: Value | None = None

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
        total, *others = (self.squares(param, grad) for param, grad in self.waiting)
        for other in others:
            total = b.emit(Add, total, other, name="grad_norm")
        scale = b.emit(ClipScale, total, name="clip", limit=limit)
        return [(p, cotangent(b, p, grad, scale, grad.name)) for p, grad in self.waiting]

    def squares(self, param: Value, grad: Value) -> Value:
        """The squared norm of a gradient: of the real parameter, where an integer stands for it."""
        b, whole = self.b, self.training.integer_rules
        if param.name not in whole.units or not whole.qas:
            return b.emit(SumSquares, grad, name=f"{grad.name}.squares")
        unit = whole.units[param.name]
        name, scale = f"{grad.name}.squares", self.scale_of(unit)
        return b.emit(RealSquares, grad, scale, name=name, axis=unit.axis, unit=unit.unit)

    def update(self, param: Value, grad: Value) -> None:
        b, rule = self.b, self.training.rules[param.name]
        if param.name in self.training.integer_rules.units:
            self.move(param, grad, rule)
            return
        moments = self.moments(param, rule)
        clock = [self.clock(rule.step)] if rule.optimizer.counts else []
        operands = (param, grad, *moments, *clock, self.lr)
        results = b.emit_all(rule.op, *operands, name=f"{param.name}.next", **rule.attrs)
        for leaf, nxt in zip((param, *moments), results, strict=True):
            b.update(leaf, nxt)

    def moments(self, param: Value, rule: UpdateRule) -> list[Value]:
        kind, found = Type(rule.kept, param.shape), []
        for moment in rule.moments:
            data = rule.state.get(moment.name, np.zeros(param.shape, np.float32))
            data = nearest(data) if rule.kept is DType.BF16 else data
            link = Link(Relation.MOMENT, param.name)
            found.append(self.b.leaf(f"{param.name}.{moment.name}", kind, Role.STATE, data, link))
        return found

    def move(self, param: Value, grad: Value, rule: UpdateRule) -> None:
        """Update an integer parameter: how far, then by how many whole numbers."""
        b, whole = self.b, self.training.integer_rules
        unit = whole.units[param.name]
        scale, size = b.const([1.0]), 1.0
        if whole.qas:
            scale, size = self.scale_of(unit), unit.unit
        moments = self.moments(param, rule)
        clock = [self.clock(rule.step)] if rule.optimizer.counts else []
        move, *results = b.emit_all(
            rule.optimizer.step, param, grad, scale, *moments, *clock, self.lr,
            name=f"{param.name}.move", axis=unit.axis, unit=size, **rule.attrs,
        )  # fmt: skip
        for leaf, nxt in zip(moments, results, strict=True):
            b.update(leaf, nxt)
        self.settle(param, move)

    def scale_of(self, unit: Unit) -> Value:
        scale = next(v for v in self.b.leaves if v.name == unit.scale)
        if unit.channels is None:
            return scale
        return self.b.const(self.b.data[unit.scale][list(unit.channels)], name=f"{unit.scale}.part")

    def settle(self, param: Value, move: Value) -> None:
        b, rounding = self.b, self.training.integer_rules.rounding
        name, leaves = f"{param.name}.next", [param]
        if rounding == "master":
            data = b.data[param.name].astype(np.float32)
            leaves.append(companion(b, param, Relation.MASTER, f32(*param.shape), data))
            results = b.emit_all(SettleMaster, param, move, leaves[1], name=name)
        elif rounding == "stochastic":
            site = list(self.training.rules).index(param.name)
            rng = self.generator()
            results = b.emit_all(Settle, param, move, rng, name=name, rounding=rounding, site=site)
        elif rounding in CARRIES:
            kind = Type(CARRIES[rounding], param.shape)
            leaves.append(companion(b, param, Relation.CARRY, kind, np.zeros(param.shape)))
            results = b.emit_all(Settle, param, move, leaves[1], name=name)
        else:
            results = b.emit_all(Settle, param, move, name=name, rounding=rounding)
        for leaf, nxt in zip(leaves, results, strict=True):
            b.update(leaf, nxt)

    def generator(self) -> Value:
        """The state of the random numbers, one for all parameters."""
        if self.rng is None:
            data = np.array([self.training.integer_rules.seed, 0])
            self.rng = self.b.leaf("optimizer.rng", Type(DType.I32, (2,)), Role.STATE, data)
            nxt = self.b.emit(RngNext, self.rng, name="optimizer.rng.next")
            self.b.update(self.rng, nxt)
        return self.rng

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
    forward: Graph, name: str, make: Callable[[Builder], Any], training: Training
) -> tuple[Builder, Any]:
    """Forward, then backward with `make(b)` receiving gradients, then the forward's own state.

    Gradients are masked where just some elements of a parameter train. State that the forward pass
    changes (running statistics, the random counter) is computed last, so that a step that is
    abandoned because its loss is not finite has changed nothing.
    """
    bare = Graph(forward.name, forward.leaves, forward.nodes, forward.outputs, (), forward.data)
    values = prune(bare)
    b = Builder.extend(forward, name)
    b.nodes, b.state = list(values.nodes), []
    loss = forward.outputs[0]
    on_gradient = make(b)

    def masked(param: Value, grad: Value) -> None:
        if param.name in training.masks:
            bits = b.const(training.masks[param.name], f"{param.name}.live", DType.U8)
            grad = b.emit(BitsDx, grad, bits, name=grad.name)
        on_gradient(param, grad)

    params = [v for v in forward.leaves if v.role is Role.PARAM and v.name in training.rules]
    backward(b, values, {loss: loss_seed(b, loss)}, params, masked)
    done = set(values.nodes)
    b.nodes += [n for n in forward.nodes if n not in done]
    b.state = list(forward.state) + b.state
    return b, on_gradient


def train_step(forward: Graph, training: Training) -> Graph:
    """One step: forward, backward, update. The only output is the loss."""

    def make(b: Builder) -> _Updater:
        return _Updater(b, training)

    b, updater = _differentiated(forward, "train_step", make, training)
    updater.finish()
    if not any(leaf.name in training.rules for leaf, _ in b.state):
        raise FrontendError(
            "there is nothing to train", why="the loss depends on no parameter that is trained"
        )
    return b.finish(forward.outputs[:1])


def gradients(forward: Graph, training: Training) -> Graph:
    """Forward and backward; every gradient is added to the sum of its parameter."""

    def make(b: Builder) -> Callable[[Value, Value], None]:
        def accumulate(param: Value, grad: Value) -> None:
            total = gradient_sum(b, param)
            b.update(total, b.emit(Add, total, grad, name=f"{total.name}.next"))

        return accumulate

    b, _ = _differentiated(forward, "gradients", make, training)
    return b.finish(forward.outputs[:1])


def apply(forward: Graph, training: Training, collected: Graph) -> Graph:
    """Update every parameter from its gradient buffer, times `scale`, and clear the buffers.

    `collected` is the entry point that fills the buffers.
    """
    b = Builder("apply")
    links = (leaf.link for leaf, _ in collected.state)
    sums = {link.of for link in links if link and link.relation is Relation.GRADIENT_SUM}
    pairs: list[tuple[Value, Value]] = []
    for leaf in forward.leaves:
        if leaf.role is Role.PARAM and leaf.name in sums:
            param = b.leaf(leaf.name, leaf.type, Role.PARAM, forward.data[leaf.name], leaf.link)
            pairs.append((param, gradient_sum(b, param)))
    _copy_scales(b, forward, [p.name for p, _ in pairs], training.integer_rules)
    updater = _Updater(b, training)
    scale = b.leaf("scale", f32(), Role.SCALAR)
    for param, total in pairs:
        updater(param, cotangent(b, param, total, scale, f"d.{param.name}"))
    updater.finish()
    for _, total in pairs:
        b.update(total, b.emit(Fill, name=f"{total.name}.next", shape=total.shape))
    return b.finish(())


def _copy_scales(b: Builder, forward: Graph, params: list[str], whole: IntegerRules) -> None:
    """The constants that integer parameters are measured by."""
    units = (whole.units[name] for name in params if name in whole.units)
    for name in dict.fromkeys(unit.scale for unit in units):
        leaf = next(v for v in forward.leaves if v.name == name)
        b.leaf(name, leaf.type, Role.CONST, forward.data[name])


def predict(forward: Graph) -> Graph:
    """The model alone: no label, no loss, no state."""
    graph = prune(replace(forward, name="predict", state=()))
    verify(graph)
    return graph
