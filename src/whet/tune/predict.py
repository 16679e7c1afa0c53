"""Predict how long a step takes, from what is counted and from what `whet tune` measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..emit.program import Program
from ..ir import Node, Value
from ..ops.stored import StoredWeight
from ..passes.machine import Machine
from .kept import this_machine


@dataclass
class Cost:
    """Of all calls of an operator: what they compute, and seconds on one thread."""

    calls: int = 0
    macs: int = 0
    products: float = 0.0  # multiply-accumulates, at the rate of a large product
    unpacking: float = 0.0  # frozen weights in fewer bits become floats
    moving: float = 0.0  # operands are read, and results written

    @property
    def seconds(self) -> float:
        return self.products + self.unpacking + self.moving


@dataclass(frozen=True)
class Prediction:
    """The cost of an entry point, by operator."""

    by_operator: dict[str, Cost] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return sum(cost.seconds for cost in self.by_operator.values())

    @property
    def macs(self) -> int:
        return sum(cost.macs for cost in self.by_operator.values())

    def total(self, part: str) -> float:
        """Seconds of `products`, of `unpacking` or of `moving`."""
        return float(sum(getattr(cost, part) for cost in self.by_operator.values()))


def predict(
    program: Program, machine: Machine | None = None, entry: str = "train_step"
) -> Prediction:
    """The time of an entry point on one thread of a machine, by default of this one.

    Products take their multiply-accumulates over the machine's rate; every call moves its operands
    and results, at the cost of a float in the cache or outside; weights in fewer bits are unpacked
    once for each call, at the cost of a float in the cache. Sums of these: nothing overlaps, and
    convolutions count as direct ones.
    """
    machine = machine or this_machine()
    found: dict[str, Cost] = {}
    for node in program.plans[entry].graph.nodes:
        if node.op.call(node) is None:
            continue
        cost, macs = found.setdefault(node.op.name, Cost()), node.op.macs(node)
        cost.calls += 1
        cost.macs += macs
        cost.products += 1e-9 * machine.direct(macs)
        cost.moving += 1e-9 * moving(node, machine)
        if isinstance(node.attrs, StoredWeight) and macs:
            cost.unpacking += 1e-9 * machine.near * node.attrs.outputs * node.attrs.inputs
    return Prediction(found)


def moving(node: Node, machine: Machine) -> float:
    """Nanoseconds to read the operands and to write the results of a call.

    A look-up reads as much of its table as it writes.
    """
    written = floats(node.outs)
    read = written if node.op.bounds(node) and not node.op.macs(node) else floats(node.ins)
    each = machine.near if read + written < machine.cache else machine.far
    return each * (read + written) / 2  # a coefficient is for a float read and written


def floats(values: Iterable[Value]) -> int:
    return sum(v.type.bytes for v in set(values)) // 4
