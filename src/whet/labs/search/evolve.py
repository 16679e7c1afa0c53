"""The largest sum of gains within a budget by evolution, as in arXiv:2206.15472.

The paper does not give population and mutation; these are the defaults of the same group's
once-for-all search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .candidate import HEAD, Candidate, Contributions
from .costs import Costs
from .solve import worthwhile


@dataclass(frozen=True)
class Evolution:
    """The best quarter are parents; half of the children are mutations, half crossovers."""

    population: int = 100
    generations: int = 100
    parents: float = 0.25
    mutations: float = 0.5
    chance: float = 0.1  # that a gene mutates
    seed: int = 0

    def __call__(self, gains: Contributions, costs: Costs, budget: int) -> Candidate | None:
        """The best candidate by the estimated costs; None if nothing fits."""
        random = np.random.default_rng(self.seed)
        parts = worthwhile(gains, costs)
        genes = {i: [r for j, r in parts if j == i] for i in sorted({i for i, _ in parts})}
        if costs.estimate(HEAD) > budget:
            return None

        def ranked(candidates: set[Candidate]) -> list[Candidate]:
            return sorted(candidates, key=lambda c: (-gains.score(c), c))

        def legal(biases: int, weights: Mapping[int, float]) -> Candidate:
            """Without the layers that these biases do not reach."""
            kept = [(i, r) for i, r in weights.items() if r and costs.reaches[i] <= biases]
            return Candidate(biases, tuple(sorted(kept)))

        def mutated(one: Candidate, chance: float) -> Candidate:
            biases, weights = one.biases, dict(one.weights)
            if random.random() < chance:
                biases = int(random.choice(list(costs.prefixes)))
            for layer, ratios in genes.items():
                if random.random() < chance:
                    weights[layer] = float(random.choice([0.0, *ratios]))
            return legal(biases, weights)

        def crossed(one: Candidate, other: Candidate) -> Candidate:
            both = (dict(one.weights), dict(other.weights))
            weights = {i: both[int(random.integers(2))].get(i, 0.0) for i in genes}
            return legal((one, other)[int(random.integers(2))].biases, weights)

        def child(parents: list[Candidate]) -> Candidate:
            one, other = (parents[int(random.integers(len(parents)))] for _ in range(2))
            mutate = random.random() < self.mutations
            return mutated(one, self.chance) if mutate else crossed(one, other)

        alive, parents = {HEAD}, list[Candidate]()
        for _ in range(self.generations + 1):
            for _ in range(20 * self.population):
                if len(alive) == self.population:
                    break
                new = child(parents) if parents else mutated(HEAD, float(random.random()))
                if costs.estimate(new) <= budget:
                    alive.add(new)
            parents = ranked(alive)[: max(2, int(self.parents * self.population))]
            best, alive = parents[0], set(parents)
        return best
