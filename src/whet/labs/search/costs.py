"""What candidates cost: the planner's bytes, and a model of them that adds up.

Planning a candidate takes a fraction of a second: fast enough to check what a solver finds, too
slow for every combination. So each prefix of biases and each part of a weight is planned once by
itself. In a combination, what is not arena adds up to the byte. The arena is estimated as the
largest among the parts, plus the layer inputs that are kept for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...workbench import Footprint, Workbench
from ..common.workers import Workers
from .candidate import HEAD, Candidate, Part, Space
from .trials import Progress, silent


@dataclass(frozen=True)
class Plans:
    """Candidates as the planner lays them out, each planned once."""

    bench: Workbench
    known: dict[Candidate, Footprint] = field(default_factory=dict)

    def run(self, candidate: Candidate) -> Footprint:
        if candidate not in self.known:
            self.known[candidate] = self.bench.plan(candidate.scheme(self.bench.parameters))
        return self.known[candidate]

    def ram(self, candidate: Candidate) -> int:
        return self.run(candidate).ram


@dataclass(frozen=True)
class Costs:
    """The bytes of every prefix of biases, and of every part of a weight with those it needs."""

    prefixes: Mapping[int, Footprint]
    parts: Mapping[Part, Footprint]
    reaches: Mapping[int, int]  # layer -> the biases that its parts were planned with
    inputs: Mapping[int, int]  # layer -> bytes of its input

    @classmethod
    def of(cls, plans: Plans, workers: Workers, progress: Progress = silent) -> Costs:
        space = Space(plans.bench.parameters)
        jobs = [c for c in (*space.prefixes, *space.singles) if c not in plans.known]
        for done, (candidate, need) in enumerate(workers.results(plans, jobs), 1):
            plans.known[candidate] = need
            progress("planning parts", done, len(jobs))
        return cls(
            {c.biases: plans.run(c) for c in space.prefixes},
            {c.weights[0]: plans.run(c) for c in space.singles},
            {layer: space.reach(layer) for layer in space.ratios},
            plans.bench.layer_input_bytes,
        )

    def added(self, part: Part) -> int:
        """What a part adds outside of the arena."""
        alone, base = self.parts[part], self.prefixes[self.reaches[part[0]]]
        return alone.ram - alone.arena - (base.ram - base.arena)

    def kept(self, part: Part) -> int:
        """What a part keeps of its layer's input from the forward to the backward pass."""
        return int(self.inputs[part[0]] * part[1])

    def estimate(self, candidate: Candidate) -> int:
        """About the RAM of a candidate."""
        base, parts = self.prefixes[candidate.biases], candidate.weights
        kept = sum(self.kept(part) for part in parts)
        arenas = [self.parts[part].arena - self.kept(part) + kept for part in parts]
        rest = base.ram - base.arena + sum(self.added(part) for part in parts)
        return rest + max(base.arena, *arenas, 0)

    def best_biases(self, gains: tuple[float, ...], budget: int) -> Candidate:
        """The prefix of the largest gain that fits."""
        fitting = [k for k, need in self.prefixes.items() if need.ram <= budget]
        return Candidate(max(fitting, key=lambda k: gains[k])) if fitting else HEAD
