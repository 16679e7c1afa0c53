"""Choose the next token of a text by its scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..ir import Array


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. With a temperature of 0 it is the most probable one.

    Scores are divided by the temperature. Of the tokens, the `top_k` most probable ones take part,
    and of these the fewest that have at least `top_p` of the probability together.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise DataError(f"temperature={self.temperature} is not a number from 0 on")
        if self.top_k is not None and (
            not isinstance(self.top_k, (int, np.integer)) or self.top_k < 1
        ):
            raise DataError(f"top_k={self.top_k!r} is not a number of tokens from 1 on")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise DataError(f"top_p={self.top_p} is not a share above 0, and at most 1")
        if self.temperature == 0 and (self.top_k or self.top_p) is not None:
            raise DataError(
                "top_k and top_p have no effect at a temperature of 0",
                why="the most probable token is taken",
                try_="temperature=1.0",
            )

    def draw(self, scores: Array, random: np.random.Generator) -> int:
        """The number of a token."""
        if self.temperature == 0:
            return int(scores.argmax())
        tokens, shares = self.shares(scores)
        return int(random.choice(tokens, p=shares))

    def shares(self, scores: Array) -> tuple[Array, Array]:
        """The tokens that take part, the most probable one first, and the probability of each."""
        tokens = np.argsort(-scores, kind="stable")[: self.top_k]
        real = scores[tokens].astype(np.float64) / self.temperature
        weights = np.exp(real - real[0])
        if self.top_p is not None:
            wanted = self.top_p * weights.sum()
            count = 1 + int(np.searchsorted(weights.cumsum(), wanted))
            tokens, weights = tokens[:count], weights[:count]
        return tokens, weights / weights.sum()
