"""Which parameters train, and how much of each: a Scheme is data, in TOML or in Python."""

from .parameters import Parameter, block_of, parameters_of
from .presets import blocks, head, named, preset, published, sparse, written
from .scheme import SHARED, SPARSE, SPARSE_SHARED, Chosen, Rule, Scheme

__all__ = [
    "SHARED", "SPARSE", "SPARSE_SHARED", "Chosen", "Parameter", "Rule", "Scheme", "block_of",
    "blocks", "head", "named", "parameters_of", "preset", "published", "sparse", "written",
]  # fmt: skip
