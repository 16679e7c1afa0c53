"""Made-up outcomes of a network of eight blocks: the gain of each part is known."""

from __future__ import annotations

import numpy as np

from whet.labs.common.validate import Outcome
from whet.labs.search.candidate import RATIOS, Candidate, Contributions
from whet.labs.search.pooling import POWER

BLOCKS = 8
LAYERS = 3 * BLOCKS
NAMES = (*(f"blocks.{i // 3}.{'abc'[i % 3]}.weight" for i in range(LAYERS)), "head.weight")


def truth() -> tuple[np.ndarray, np.ndarray]:
    """The gain of each bias and each weight, in points: only weights named a gain much."""
    weights = [(1.5 if i % 3 == 0 else 0.1) * (0.5 + i / LAYERS) for i in range(LAYERS)]
    return np.full(LAYERS, 0.1), np.array(weights)


def gain(candidate: Candidate) -> float:
    biases, weights = truth()
    parts = sum(weights[layer] * ratio**POWER for layer, ratio in candidate.weights)
    return float(biases[LAYERS - candidate.biases :].sum() + parts)


def outcome(candidate: Candidate, random: np.random.Generator | None, noise: float) -> Outcome:
    off = (0.0, 0.0) if random is None else random.normal(0, noise, 2)
    points = gain(candidate)
    return Outcome(50 + points + off[0], 1 - 0.03 * (points + 0.3 * off[1]), 1)


def analysed(seed: int = 0, noise: float = 0.5) -> Contributions:
    random = np.random.default_rng(seed)
    tried = [Candidate(k) for k in range(LAYERS + 1)]
    tried += [Candidate(LAYERS - i, ((i, r),)) for i in range(LAYERS) for r in RATIOS]
    return Contributions.of({c: outcome(c, random, noise) for c in tried}, "accuracy", NAMES)
