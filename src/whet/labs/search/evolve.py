"""The best sum of gains within a budget, by evolution, as arXiv:2206.15472 did it.

The paper does not say how many schemes breed, and how; the numbers here are those that the same
group's once-for-all search has by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...scheme.contribution import Candidate, Contributions
from .planner import Costs
from .solve import worthwhile


@dataclass(frozen=True)
class Evolution:
    """The best quarter are parents; half of the children are changed, half mix two."""

    population: int = 100
    generations: int = 100
    parents: float = 0.25
    mutated: float = 0.5
    chance: float = 0.1  # that a gene changes
    seed: int = 0

    def __call__(self, gains: Contributions, costs: Costs, budget: int) -> Candidate | None:
        """The best that was ever seen; None if nothing fits."""
        tribe = Tribe(gains, costs, np.random.default_rng(self.seed))
        first = Candidate(min(costs.prefixes, key=lambda k: costs.prefixes[k].ram))
        if costs.estimate(first) > budget:
            return None
        people = {first}
        for _ in range(50 * self.population):
            if len(people) == self.population:
                break
            people |= tribe.fitting(tribe.changed(first, float(tribe.random.random())), budget)
        for _ in range(self.generations):
            elders = tribe.ranked(people)[: max(2, int(self.parents * self.population))]
            people = set(elders)
            for _ in range(10 * self.population):
                if len(people) == self.population:
                    break
                people |= tribe.fitting(self.child(tribe, elders), budget)
        return tribe.ranked(people)[0]

    def child(self, tribe: Tribe, elders: list[Candidate]) -> Candidate:
        one, other = (elders[int(tribe.random.integers(len(elders)))] for _ in range(2))
        if tribe.random.random() < self.mutated:
            return tribe.changed(one, self.chance)
        return tribe.mixed(one, other)


class Tribe:
    """What candidates are made of, and chance."""

    def __init__(self, gains: Contributions, costs: Costs, random: np.random.Generator) -> None:
        self.gains, self.costs, self.random = gains, costs, random
        parts = worthwhile(gains, costs)
        layers = sorted({layer for layer, _ in parts})
        self.genes = {layer: [r for i, r in parts if i == layer] for layer in layers}

    def ranked(self, people: set[Candidate]) -> list[Candidate]:
        return sorted(people, key=lambda c: (-self.gains.score(c), c))

    def fitting(self, candidate: Candidate, budget: int) -> set[Candidate]:
        return {candidate} if self.costs.estimate(candidate) <= budget else set()

    def changed(self, candidate: Candidate, chance: float) -> Candidate:
        biases, weights = candidate.biases, dict(candidate.weights)
        if self.random.random() < chance:
            biases = int(self.random.choice(list(self.costs.prefixes)))
        for layer, ratios in self.genes.items():
            if self.random.random() < chance:
                weights[layer] = float(self.random.choice([0.0, *ratios]))
        return self.allowed(biases, weights)

    def mixed(self, a: Candidate, b: Candidate) -> Candidate:
        sources = (dict(a.weights), dict(b.weights))
        weights = {i: sources[int(self.random.integers(2))].get(i, 0.0) for i in self.genes}
        return self.allowed((a, b)[int(self.random.integers(2))].biases, weights)

    def allowed(self, biases: int, weights: Mapping[int, float]) -> Candidate:
        """Without the layers that these biases do not reach."""
        kept = [(i, r) for i, r in weights.items() if r and self.costs.reaches[i] <= biases]
        return Candidate(biases, tuple(sorted(kept)))
