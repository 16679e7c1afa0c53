"""The largest sum of gains within a budget.

One prefix of biases and at most one fraction of each layer: a knapsack with a choice of each kind,
which HiGHS solves exactly in about a second.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ...errors import WhetError, option
from .candidate import HEAD, Candidate, Contributions, Part
from .costs import Costs, Plans

Solver = Callable[[Contributions, Costs, int], Candidate | None]
KIB = 1024.0
NODES = 50_000  # that HiGHS may visit; a time limit would make results depend on the machine
QUESTIONS = 8  # to the solver for one budget


def check_solver() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise WhetError(
            "the exact search needs SciPy, which is not installed",
            try_=('pip install "whet[search]"', option("method", "evolution")),
        )


def worthwhile(gains: Contributions, costs: Costs) -> list[Part]:
    return [part for part, gain in gains.weights.items() if gain > 0 and part in costs.parts]


def exact(gains: Contributions, costs: Costs, budget: int) -> Candidate | None:
    """The best candidate by the estimated costs; None if nothing fits."""
    check_solver()
    from scipy.optimize import Bounds, LinearConstraint, milp

    prefixes, parts = sorted(costs.prefixes), worthwhile(gains, costs)
    count, n = len(prefixes), len(prefixes) + len(parts) + 2
    arena, kept = n - 2, n - 1  # continuous, in KiB: the arena, and layer inputs kept in it
    rows, lows, highs = [], [], []

    def constrain(row: dict[int, float], low: float, high: float) -> None:
        dense = np.zeros(n)
        dense[list(row)] = list(row.values())
        rows.append(dense)
        lows.append(low)
        highs.append(high)

    bases = [costs.prefixes[k] for k in prefixes]
    constrain({i: 1.0 for i in range(count)}, 1, 1)  # one prefix
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
            constraints=LinearConstraint(np.array(rows), lows, highs),
            integrality=np.array([1] * (n - 2) + [0, 0]),
            bounds=Bounds(np.zeros(n), np.array([1.0] * (n - 2) + [np.inf, np.inf])),
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


def best_within(
    budget: int, gains: Contributions, costs: Costs, plans: Plans, solver: Solver
) -> Candidate:
    """The best candidate found whose program, as planned, keeps the budget.

    The solver works with estimated costs. So it is asked again, for as much less or more as the
    plan of its last answer was over or under the budget, until it repeats itself.
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
    return best


@dataclass(frozen=True)
class Solve:
    """Solves for budgets and gains; goes to worker processes."""

    costs: Costs
    plans: Plans
    solver: Solver

    def run(self, job: tuple[str, int, Contributions]) -> Candidate:
        _, budget, gains = job
        return best_within(budget, gains, self.costs, self.plans, self.solver)
