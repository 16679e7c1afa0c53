"""Which parameters train, and how much of each: a Scheme is data, in TOML or in Python."""

from . import contribution
from .parameters import Parameter, parameters_of
from .presets import blocks, named, preset, published, sparse, written
from .scheme import Chosen, Rule, Scheme

__all__ = [
    "Chosen", "Parameter", "Rule", "Scheme", "blocks", "contribution", "named", "parameters_of",
    "preset", "published", "sparse", "written",
]  # fmt: skip
