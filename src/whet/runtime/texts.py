"""Write texts with a program: what is in its cache, and one token after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..emit.c import GENERATION
from ..errors import DataError
from ..ir import Array, Role
from .sampling import Sampling

if TYPE_CHECKING:
    from .trainer import Trainer

PREFILL, DECODE = GENERATION
FEW = 3  # tokens that are read one by one in about the time that `prefill` takes


class Texts:
    """The cache of a trainer: `held` are the ids whose keys and values it has."""

    def __init__(self, trainer: Trainer) -> None:
        entries = trainer.program.entries
        if DECODE not in entries:
            raise DataError("the program cannot write texts", try_="compile(..., generate=True)")
        self.trainer, self.held = trainer, list[int]()
        self.context = entries[DECODE].leaves_of(Role.CACHE)[0].shape[0]
        self.several = entries[PREFILL].leaves_of(Role.INPUT)[0].type.elements

    def scores(self, ids: Sequence[int]) -> Array:
        """Those of the token behind `ids`."""
        self.check(len(ids))
        last = len(ids) - 1
        start = shared(self.held, ids[:last])
        while last - start > FEW:
            at = min(start, self.context - self.several)  # there is room for all of them
            piece = ids[at : min(at + self.several, last)]
            self.run(PREFILL, [*piece, *[0] * (self.several - len(piece))], at)
            start = at + len(piece)
            self.held = [*ids[:start]]
        for at in range(start, last + 1):
            found = self.run(DECODE, ids[at : at + 1], at)
            self.held = [*ids[: at + 1]]
        return found[0].reshape(-1)

    def run(self, entry: str, ids: Sequence[int], position: int) -> list[Array]:
        """Whatever the cache held of these positions and later ones is gone."""
        self.held = self.held[:position]
        feed = self.trainer._inputs(entry, np.array([ids]))
        return self.trainer._run(entry, feed, {"position": position})

    def check(self, count: int) -> None:
        if not 0 < count <= self.context:
            raise DataError(
                f"the text has {count} tokens; there is room for {self.context}"
                if count
                else "there is no token to go on from",
                try_="compile with an example of longer sequences" if count else "the id of `bos`",
            )


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids they begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def numbers(ids: Any) -> list[int]:
    """One sequence of ids."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            f"a text is one sequence of ids, not {array.dtype}[{','.join(map(str, array.shape))}]",
            try_="ids[0], if this is a batch of one",
        )
    return [int(i) for i in array]


def written(
    texts: Texts, ids: list[int], count: int, sampling: Sampling, seed: int | None,
    stop: int | Collection[int],
) -> Iterator[int]:  # fmt: skip
    """Everything is checked before the first token is asked for."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
        raise DataError(f"count={count!r} is not a number of tokens")
    if seed is not None and (not isinstance(seed, (int, np.integer)) or seed < 0):
        raise DataError(f"seed={seed!r} is not a whole number from 0 on")
    ends = set(numbers([stop] if isinstance(stop, (int, np.integer)) else list(stop)))
    texts.check(len(ids))
    if len(ids) + count > texts.context + 1:  # the last one is not read
        raise DataError(
            f"{len(ids)} tokens and {count} more do not fit: there is room for {texts.context}",
            try_=f"count={texts.context + 1 - len(ids)}, or a program for longer sequences",
        )

    def tokens() -> Iterator[int]:
        random = np.random.default_rng(seed)
        for _ in range(count):
            token = sampling.draw(texts.scores(ids), random)
            if token in ends:
                return
            yield token
            ids.append(token)

    return tokens()
