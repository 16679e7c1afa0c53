"""Steps on samples that a trainer has seen: they begin with what the frozen layers made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..emit.program import Program
from ..errors import DataError
from ..ir import Array, Role
from .sample_cache import SampleCache, as_records, from_records, ids_of

Prefix = Callable[[Any, Array], list[Array]]  # of inputs, as of Trainer._prefix


def kept_values(
    program: Program, cache: SampleCache, prefix: Prefix, x: Any, sample: Any
) -> dict[str, Array]:
    """What is kept of a batch, by name: from the cache or, if a sample is missing, computed."""
    ids = ids_of(sample, program.batch)
    cache.bind(program)
    records = cache.get(ids)
    if records is None:
        if x is None:
            missing = next(i for i in ids if i not in cache)
            raise DataError(f"sample {missing!r} is not in the cache", try_="pass its inputs")
        places = np.arange(program.batch)
        records = list(as_records(prefix(x, places), program.batch))
        if not len(cache):
            check_alone(prefix, x, np.stack(records))
        for one, record in zip(ids, records, strict=True):
            cache.put(one, record)
    leaves = program.entries["train_step_kept"].leaves_of(Role.INPUT)
    values = from_records(records, program)
    return {leaf.name: value for leaf, value in zip(leaves, values, strict=True)}


def check_alone(prefix: Prefix, x: Any, records: Array) -> None:
    """Refuse records that depend on the place of a sample, or on the others of its batch.

    Neighbours take each other's places, so that every sample stands beside others than before.
    """
    places = np.arange(len(records))
    for chosen in (places & ~1, np.minimum(places | 1, places[-1])):
        again = as_records(prefix(x, chosen), len(records))
        if not np.array_equal(records[chosen], again):
            raise DataError(
                "what the frozen layers make of a sample depends on the rest of its batch",
                try_="compile without cache_prefix=True, or for a batch of one sample",
            )
