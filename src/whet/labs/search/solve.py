"""The best sum of gains within a budget, by integer programming.

A prefix of biases and at most one fraction of each layer are a knapsack with one choice of each
kind, which HiGHS solves in a fraction of a second.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ...errors import WhetError, option
from ...scheme.contribution import Candidate, Contributions
from .planner import Costs, Part

Solver = Callable[[Contributions, Costs, int], Candidate | None]
KIB = 1024.0


NODES = 200_000  # that are looked at; not seconds, so that a busy machine finds the same


def check_solver() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise WhetError(
            "searching needs SciPy, which is not installed",
            try_=('pip install "whet[search]"', option("method", "evolution")),
        )


def exact(gains: Contributions, costs: Costs, budget: int) -> Candidate | None:
    """The best there is by the costs that add up; None if nothing fits."""
    check_solver()
    from scipy.optimize import Bounds, LinearConstraint, milp

    prefixes, parts = sorted(costs.prefixes), worthwhile(gains, costs)
    count, n = len(prefixes), len(prefixes) + len(parts) + 2
    arena, kept = n - 2, n - 1  # the last variables are KiB: of the arena, and of inputs in it
    rows, lows, highs = [], [], []

    def hold(row: dict[int, float], low: float, high: float) -> None:
        dense = np.zeros(n)
        dense[list(row)] = list(row.values())
        rows.append(dense)
        lows.append(low)
        highs.append(high)

    hold({i: 1.0 for i in range(count)}, 1, 1)  # one prefix
    hold({i: costs.prefixes[k].arena / KIB for i, k in enumerate(prefixes)} | {arena: -1.0},
         -np.inf, 0)  # fmt: skip
    total = {i: costs.prefixes[k].rest / KIB for i, k in enumerate(prefixes)} | {arena: 1.0}
    total |= {j: costs.added(part) / KIB for j, part in enumerate(parts, count)}
    keeps = {j: costs.kept(part) / KIB for j, part in enumerate(parts, count)}
    hold(keeps | {kept: -1.0}, 0, 0)
    hold(total, -np.inf, budget / KIB)
    for layer in {layer for layer, _ in parts}:
        own = {j: 1.0 for j, part in enumerate(parts, count) if part[0] == layer}
        alone = {j: costs.parts[parts[j - count]].arena / KIB - keeps[j] for j in own}
        hold(alone | {kept: 1.0, arena: -1.0}, -np.inf, 0)  # its arena, with what others keep
        far = {i: -1.0 for i, k in enumerate(prefixes) if k >= costs.reaches[layer]}
        hold(own | far, -np.inf, 0)  # one fraction, and only with the biases that reach it
    value = [gains.biases[k] for k in prefixes] + [gains.weights[part] for part in parts]
    scale = max(map(abs, value)) or 1.0  # HiGHS takes small numbers for none
    with quiet():
        found = milp(
            -np.array([*value, 0.0, 0.0]) / scale,
            constraints=LinearConstraint(np.array(rows), lows, highs),
            integrality=np.array([1] * (n - 2) + [0, 0]),
            bounds=Bounds(np.zeros(n), np.array([1.0] * (n - 2) + [np.inf, np.inf])),
            options={"mip_rel_gap": 0.0, "node_limit": NODES},
        )
    if found.x is None:
        return None
    chosen = found.x > 0.5
    biases = next(k for i, k in enumerate(prefixes) if chosen[i])
    return Candidate(biases, tuple(sorted(p for j, p in enumerate(parts, count) if chosen[j])))


@contextmanager
def quiet() -> Iterator[None]:
    """Without what HiGHS prints past Python, whatever it is told."""
    sys.stdout.flush()
    try:
        kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no output to keep clean
        yield
        return
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def worthwhile(gains: Contributions, costs: Costs) -> list[Part]:
    return [part for part, gain in gains.weights.items() if gain > 0 and part in costs.parts]
