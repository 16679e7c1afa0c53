"""The largest sum of gains within a budget: one prefix of biases, at most one fraction of a layer.

That is a knapsack with a choice of each kind. `exact` solves it with HiGHS in about a second;
`evolution` is how arXiv:2206.15472 does it. Planning a candidate takes a fraction of a second: fast
enough to check what a solver finds, too slow for every combination. So solvers use `Costs`, a model
that adds up.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ...errors import SchemeError, WhetError, option
from ...workbench import Footprint, Workbench
from ..common.progress import Progress, silent
from ..common.workers import Workers
from .candidate import HEAD, Candidate, Contributions, Part, Space

KIB = 1024.0
NODES = 50_000  # that HiGHS may visit; a time limit would make results depend on the machine
QUESTIONS = 8  # to the solver for one budget
LESS = tuple(1 - step / 50 for step in range(1, 13))  # of the budget, if no answer has fitted


@dataclass(frozen=True)
class Plans:
    """Candidates as the planner lays them out, each planned once."""

    bench: Workbench
    known: dict[Candidate, Footprint | None] = field(default_factory=dict)

    def run(self, candidate: Candidate) -> Footprint | None:
        """None if what it freezes is not the beginning that `cache_prefix` asks for."""
        if candidate not in self.known:
            self.known[candidate] = self.planned(candidate)
        return self.known[candidate]

    def planned(self, candidate: Candidate) -> Footprint | None:
        try:
            return self.bench.plan(candidate.scheme(self.bench.parameters))
        except SchemeError:
            if candidate == HEAD or not self.bench.options.cache_prefix:
                raise
            return None

    def ram(self, candidate: Candidate) -> int:
        need = self.run(candidate)
        return sys.maxsize if need is None else need.ram


@dataclass(frozen=True)
class Costs:
    """The bytes of every prefix of biases, and of every part of a weight with those it needs.

    Each was planned by itself. In a combination, what is not arena adds up to the byte. The arena
    is estimated as the largest among the parts, plus the layer inputs that are kept for the others.
    """

    prefixes: Mapping[int, Footprint]
    parts: Mapping[Part, Footprint]
    reaches: Mapping[int, int]  # layer -> the biases that its parts were planned with
    inputs: Mapping[int, int]  # layer -> bytes of its input

    @classmethod
    def of(cls, plans: Plans, workers: Workers, progress: Progress = silent) -> Costs:
        space = Space(plans.bench.parameters)
        jobs = [c for c in (*space.prefixes, *space.singles) if c not in plans.known]
        for done, (candidate, need) in enumerate(workers.results(plans.run, jobs), 1):
            plans.known[candidate] = need
            progress("planning parts", done, len(jobs))
        prefixes = {c.biases: need for c in space.prefixes if (need := plans.run(c))}
        parts = {c.weights[0]: need for c in space.singles if (need := plans.run(c))}
        reaches = {layer: space.reach(layer) for layer in space.ratios}
        parts = {part: need for part, need in parts.items() if reaches[part[0]] in prefixes}
        return cls(prefixes, parts, reaches, plans.bench.layer_input_bytes)

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


Solver = Callable[[Contributions, Costs, int], Candidate | None]


def best_within(
    budget: int, gains: Contributions, costs: Costs, plans: Plans, solver: Solver
) -> Candidate:
    """The best candidate found whose program, as planned, keeps the budget.

    The solver works with estimated costs. So it is asked again, for as much less or more as the
    plan of its last answer was over or under the budget, until it repeats itself. If none of its
    answers fits, it is asked for less and less.
    """
    best, asked, seen = HEAD, budget, set[Candidate]()
    for _ in range(QUESTIONS):
        found = solver(gains, costs, asked) or HEAD
        if found in seen:
            break
        seen.add(found)
        over = plans.ram(found) - budget
        if over <= 0 and gains.score(found) > gains.score(best):
            best = found
        asked -= over
    for share in LESS if best == HEAD else ():
        found = solver(gains, costs, int(share * budget)) or HEAD
        if plans.ram(found) <= budget:
            return found
    return best


def worthwhile(gains: Contributions, costs: Costs) -> list[Part]:
    return [part for part, gain in gains.weights.items() if gain > 0 and part in costs.parts]


# Exact ------------------------------------------------------------------------------------------


def check_solver() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise WhetError(
            "the exact search needs SciPy, which is not installed",
            try_=("pip install scipy", option("method", "evolution")),
        )


def exact(gains: Contributions, costs: Costs, budget: int) -> Candidate | None:
    """The best candidate by the estimated costs; None if nothing fits."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    prefixes, parts = sorted(costs.prefixes), worthwhile(gains, costs)
    count, n = len(prefixes), len(prefixes) + len(parts) + 2
    arena, kept = n - 2, n - 1  # continuous, in KiB: the arena, and layer inputs kept in it
    constraints = []

    def constrain(row: dict[int, float], low: float, high: float) -> None:
        dense = np.zeros(n)
        dense[list(row)] = list(row.values())
        constraints.append(LinearConstraint(dense, low, high))

    bases = [costs.prefixes[k] for k in prefixes]
    constrain(dict.fromkeys(range(count), 1.0), 1, 1)  # one prefix
    constrain({i: b.arena / KIB for i, b in enumerate(bases)} | {arena: -1.0}, -np.inf, 0)
    total = {i: (b.ram - b.arena) / KIB for i, b in enumerate(bases)} | {arena: 1.0}
    total |= {j: costs.added(part) / KIB for j, part in enumerate(parts, count)}
    constrain(total, -np.inf, budget / KIB)
    keeps = {j: costs.kept(part) / KIB for j, part in enumerate(parts, count)}
    constrain(keeps | {kept: -1.0}, 0, 0)
    for layer in {layer for layer, _ in parts}:
        own = {j: 1.0 for j, part in enumerate(parts, count) if part[0] == layer}
        alone = {j: costs.parts[parts[j - count]].arena / KIB - keeps[j] for j in own}
        constrain(alone | {kept: 1.0, arena: -1.0}, -np.inf, 0)  # its arena, with what others keep
        reached = {i: -1.0 for i, k in enumerate(prefixes) if k >= costs.reaches[layer]}
        constrain(own | reached, -np.inf, 0)  # one fraction, with the biases that reach the layer
    value = [gains.biases[k] for k in prefixes] + [gains.weights[part] for part in parts]
    scale = max(map(abs, value)) or 1.0  # HiGHS takes small numbers for zero
    with stdout_closed():
        found = milp(
            -np.array([*value, 0.0, 0.0]) / scale,
            constraints=constraints,
            integrality=[1] * (n - 2) + [0, 0],
            bounds=Bounds(0.0, [1.0] * (n - 2) + [np.inf, np.inf]),
            options={"node_limit": NODES},
        )
    if found.x is None:
        return None
    chosen = found.x > 0.5
    biases = next(k for i, k in enumerate(prefixes) if chosen[i])
    return Candidate(biases, tuple(sorted(p for j, p in enumerate(parts, count) if chosen[j])))


@contextmanager
def stdout_closed() -> Iterator[None]:
    """HiGHS prints to file descriptor 1, whatever it is told."""
    sys.stdout.flush()
    try:
        kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


# Evolution --------------------------------------------------------------------------------------

# The paper does not give its parameters of evolution; these are the once-for-all search's.
POPULATION, GENERATIONS, PARENTS, CHANCE = 100, 100, 25, 0.1


def evolution(gains: Contributions, costs: Costs, budget: int, seed: int = 0) -> Candidate | None:
    """The same by evolution: half of the children are mutations of a parent, half crossovers."""
    if costs.estimate(HEAD) > budget:
        return None
    parts, random = worthwhile(gains, costs), np.random.default_rng(seed)
    alive, parents = {HEAD}, list[Candidate]()
    for _ in range(GENERATIONS + 1):
        for _ in range(20 * POPULATION):
            if len(alive) == POPULATION:
                break
            new = child(parents, parts, costs, random)
            if costs.estimate(new) <= budget:
                alive.add(new)
        parents = sorted(alive, key=lambda c: (-gains.score(c), c))[:PARENTS]
        alive = set(parents)
    return parents[0]


def child(
    parents: Sequence[Candidate], parts: Sequence[Part], costs: Costs, random: np.random.Generator
) -> Candidate:
    """A mutation or a crossover; without parents, a random candidate."""
    one, other = (parents[int(random.integers(len(parents)))] if parents else HEAD for _ in "ab")
    chance = CHANCE if parents else float(random.random())
    mutate = not parents or random.random() < 0.5

    def gene(first: float, second: float, choices: list[float]) -> float:
        if mutate:
            return float(random.choice(choices)) if random.random() < chance else first
        return second if random.random() < 0.5 else first

    first, second, genes = dict(one.weights), dict(other.weights), dict[int, float]()
    for layer in sorted({layer for layer, _ in parts}):
        ratios = [0.0, *(r for i, r in parts if i == layer)]
        genes[layer] = gene(first.get(layer, 0.0), second.get(layer, 0.0), ratios)
    biases = int(gene(one.biases, other.biases, list(costs.prefixes)))
    kept = ((i, r) for i, r in genes.items() if r and costs.reaches[i] <= biases)
    return Candidate(biases, tuple(kept))
