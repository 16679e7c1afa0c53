"""What a search can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import WhetError
from ...runtime.cache import cache_folder
from .engine import Engine
from .evolve import Evolution
from .lesson import Lesson
from .proxies import PROXIES
from .solve import Solver, exact

FINE_TUNING = "fine-tuning"
METHODS = ("exact", "evolution")


@dataclass(frozen=True)
class Search:
    """How a scheme is looked for.

    `by` says what contributions are: "fine-tuning" tries every candidate for real, a proxy
    ("fisher", "gradient", "gradient/byte", "one-batch") guesses in a fraction of the time. `method`
    says how they are put together. `finals` is how many times the length of a lesson whole
    candidates are trained for before one is taken; 0 takes the best sum unseen. They come in
    `rounds`, in each of them `draws` for every budget: the best by other gains that are as likely
    (a proxy's gains have no rounds). A round is trained and judged on two of so many `splits` of
    the data, the best of all rounds on all of them; no sample judges twice. `batch` is how many
    samples candidates train on at once, if not as many as the program. `judge` are data to judge by
    (there is one split then); without them a share of the data is held out. Outcomes are kept in
    `store`, a folder, and not computed again. `workers` are processes here; `ray` is the address of
    a cluster, or "local".
    """

    by: str = FINE_TUNING
    method: str = "exact"
    lesson: Lesson = field(default_factory=Lesson)
    finals: int = 2
    splits: int = 4
    rounds: int = 4
    draws: int = 6
    batch: int | None = None
    judge: Any = None
    limit: int | None = None  # of samples that are looked at
    workers: int = 1
    ray: str | None = None
    store: str | os.PathLike[str] | None = None
    seed: int = 0  # of evolution and of draws
    progress: bool | None = None  # a bar; by default if there is a terminal

    def __post_init__(self) -> None:
        for word, number, least in (
            ("batch", self.batch, 1), ("limit", self.limit, 1), ("finals", self.finals, 0),
            ("splits", self.splits, 1), ("rounds", self.rounds, 0), ("draws", self.draws, 1),
            ("workers", self.workers, 1), ("seed", self.seed, 0),
        ):  # fmt: skip
            if number is not None and (type(number) is not int or number < least):
                raise WhetError(f"{word}={number!r} is no whole number from {least} on")
        for word, value, known in (
            ("by", self.by, (FINE_TUNING, *PROXIES)),
            ("method", self.method, METHODS),
        ):
            if value not in known:
                raise WhetError(f"there is no {word}={value!r}", try_=", ".join(known))

    @property
    def engine(self) -> Engine:
        return Engine(self.workers, self.ray)

    @property
    def solver(self) -> Solver:
        return exact if self.method == "exact" else Evolution(seed=self.seed)

    @property
    def folder(self) -> Path:
        return Path(self.store) if self.store is not None else cache_folder() / "selection"
