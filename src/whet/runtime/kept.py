"""Steps on samples that a trainer has seen: they begin with what the frozen layers made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..emit.program import Program
from ..errors import DataError
from ..ir import Array, Role
from .sample_cache import SampleCache, as_records, from_records, ids_of

Prefix = Callable[[Any, int], list[Array]]  # of inputs, as of Trainer._prefix


def kept_values(
    program: Program, cache: SampleCache, prefix: Prefix, x: Any, sample: Any
) -> dict[str, Array]:
    """What is kept of a batch, by name: from the cache or, if a sample is missing, computed."""
    ids = ids_of(sample, program.batch)
    first = cache.bind(program)
    records = cache.get(ids)
    if records is None:
        if x is None:
            missing = next(i for i in ids if i not in cache)
            raise DataError(f"sample {missing!r} is not in the cache", try_="pass its inputs")
        records = list(as_records(prefix(x, 0), program.batch))
        if first and program.batch > 1:
            check_alone(np.stack(records), as_records(prefix(x, 1), program.batch))
        for one, record in zip(ids, records, strict=True):
            cache.put(one, record)
    leaves = program.entries["train_step_kept"].leaves_of(Role.INPUT)
    values = from_records(records, program)
    return {leaf.name: value for leaf, value in zip(leaves, values, strict=True)}


def check_alone(records: Array, turned: Array) -> None:
    """Refuse records that depend on the place of a sample, or on the others of its batch."""
    if not np.array_equal(np.roll(records, 1, axis=0), turned):
        raise DataError(
            "what the frozen layers make of a sample depends on the rest of its batch",
            try_="compile without cache_prefix=True, or for a batch of one sample",
        )
