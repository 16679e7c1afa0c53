"""Words in an audit: what an update tells about ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from ...errors import DataError
from .encoder import IGNORED, Encoder
from .gradients import Observation
from .roc import Array
from .text import RecoveredText, bag, recover_text, recovered_tokens


@dataclass(frozen=True, eq=False)
class Words:
    """The ids that were found, and those that were looked for."""

    method: str
    truth: Array
    found: Array  # in their places, or where `ordered` is not set, only which ones occur
    ordered: bool
    seconds: float = 0.0
    vocabulary: int = 0  # ids that there are, if that is what a guess is made from

    @property
    def guessed(self) -> float:
        """Distinct ids that as many guesses would find, on average."""
        return self.distinct * len({*self.found.tolist()}) / max(self.vocabulary, 1)

    @property
    def known(self) -> int:
        """Distinct ids that occur and were found."""
        return len({*self.truth.tolist()} & {*self.found.tolist()})

    @property
    def placed(self) -> int:
        """Ids that were found at their place."""
        if not self.ordered:
            return 0
        return round(recovered_tokens(self.truth, self.found)[1] * len(self.truth))

    @property
    def distinct(self) -> int:
        return len({*self.truth.tolist()})

    def __str__(self) -> str:
        words = f"{self.known} of {self.distinct} distinct tokens"
        return f"{words}, {self.placed} of {len(self.truth)} places" if self.ordered else words


def find_words(seen: Observation, x: Array, y: Array, mask: int | None, seed: int) -> Words:
    """By the strongest attack that applies.

    Of an `Encoder`, sentences are recovered; of any other model with an embedding that trains,
    which words occur: only their rows have a gradient. The attacker knows how many there are.
    """
    truth = whole(x, y)
    if isinstance(seen.model, Encoder) and seen.batch == 1:
        if mask is None:
            raise DataError("the id of the masked word is not known", try_="audit(..., mask=...)")
        found: RecoveredText = recover_text(seen, mask=mask, seed=seed)
        return Words(found.method, truth, found.tokens, True, found.seconds)
    embeddings = [
        f"{name}.weight"
        for name, module in seen.model.named_modules()
        if isinstance(module, nn.Embedding) and f"{name}.weight" in seen.gradients
    ]
    if not embeddings:
        raise DataError("no embedding trains, so no row of one tells which words occur")
    gradient = seen.gradients[embeddings[0]]
    rows = bag(gradient)
    order = np.argsort(-np.linalg.norm(gradient[rows], axis=1), kind="stable")
    found_ids = rows[order][: truth.size]
    return Words("embedding rows", truth, found_ids, False, vocabulary=len(gradient))


def whole(x: Array, y: Array) -> Array:
    """The sentence with its hidden words, which the labels of masked language modelling name."""
    tokens: Array = np.asarray(x, np.int64).ravel().copy()
    labels = np.asarray(y).ravel()
    if labels.size == tokens.size and (labels == IGNORED).any():
        hidden = labels != IGNORED
        tokens[hidden] = labels[hidden]
    return tokens
