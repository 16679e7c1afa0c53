"""What each kernel call of a training step costs on a microcontroller, in instructions.

A step is one function that calls a kernel after the other. The emulator says how many instructions
ran from each of its addresses to the next; here those addresses get the names of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...emit.program import Program
from ...ir import Node
from ...report.phases import PHASES as PHASES
from ...report.phases import phases_of
from ...report.trace import Slice, Timeline
from .chip import chip_of
from .emulator import Watched
from .firmware import Firmware


@dataclass(frozen=True)
class Cost:
    """One kernel call: its node, which part of the step it belongs to, instructions a step."""

    node: Node
    kernel: str
    phase: str
    instructions: float


@dataclass(frozen=True)
class Profile:
    costs: tuple[Cost, ...]

    @property
    def total(self) -> float:
        return sum(c.instructions for c in self.costs)

    def __repr__(self) -> str:
        return f"<Profile of {len(self.costs)} calls: {self.total:,.0f} instructions a step>"

    def of(self, phase: str) -> float:
        return sum(c.instructions for c in self.costs if c.phase == phase)

    def timeline(self, steps: int) -> Timeline:
        """Some steps one after the other, each of them the mean one."""
        found, at = [], 0.0
        for _ in range(steps):
            slices = []
            for cost in self.costs:
                slices.append(Slice(cost.node, at, cost.instructions))
                at += cost.instructions
            found.append(tuple(slices))
        return Timeline(tuple(found), "instructions")


def profile(program: Program, built: Firmware, seen: Watched, steps: int) -> Profile:
    """Costs of a mean step of a run of `steps`."""
    begin, size = built.symbols[f"{program.name}_train_step"]
    names = {at: name for name, (at, _) in built.symbols.items()}
    found = [
        (names.get(to, ""), seen.spent[at])
        for at, to in chip_of(program).calls(built.code(begin, size), begin)
        if at in seen.spent
    ]
    graph = program.entries["train_step"]
    phases = phases_of(graph)
    costs, place = [], 0
    for node in graph.nodes:
        call = node.op.call(node)
        if call is None:
            continue
        while place < len(found) and found[place][0] != call.kernel:
            place += 1  # a copy or a check, which are not nodes
        if place == len(found):
            break
        costs.append(Cost(node, call.kernel, phases[node], found[place][1] / steps))
        place += 1
    return Profile(tuple(costs))
