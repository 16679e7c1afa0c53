"""Which parameters train, and how much of each: a Scheme is data, in TOML or in Python."""

from .blocks import blocks, head, last_layer
from .parameters import Parameter, block_of, parameters_of
from .presets import lora, named, preset, published, sparse, written
from .rule import SHARED, SPARSE, SPARSE_SHARED, Beside, Chosen, Rule
from .scheme import DEFAULT, Scheme

__all__ = [
    "DEFAULT", "SHARED", "SPARSE", "SPARSE_SHARED", "Beside", "Chosen", "Parameter", "Rule",
    "Scheme",
    "block_of", "blocks", "head", "last_layer", "lora", "named", "parameters_of", "preset",
    "published", "sparse", "written",
]  # fmt: skip
