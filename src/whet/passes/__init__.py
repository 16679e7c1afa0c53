"""Graph -> Graph functions that keep the meaning and make the program smaller."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..errors import FrontendError
from ..ir import Graph, verify
from .add_parts import add_parts
from .fold_batch_norm import fold_batch_norm
from .fold_constants import fold_constants
from .fuse_layers import fuse_layers
from .keep_bits import keep_bits
from .reorder import reorder
from .share_common import share_common
from .split_channels import Part, split_channels
from .stream_rows import stream_rows

Forward = Callable[[Graph, Collection[str]], Graph]

# On the model, before differentiation: each is told which leaves change while training.
FORWARD: tuple[Forward, ...] = (fold_batch_norm, fold_constants)

# On every entry point, after differentiation.
PIPELINE: tuple[Callable[[Graph], Graph], ...] = (
    share_common,
    add_parts,
    keep_bits,
    fuse_layers,
    reorder,
    stream_rows,
)

SWITCHES = tuple(p.__name__ for p in (*FORWARD, *PIPELINE)) + ("inplace",)


def check_switches(without: Collection[str]) -> frozenset[str]:
    for name in without:
        if name not in SWITCHES:
            raise FrontendError(f"there is no pass {name!r} to leave out", try_=", ".join(SWITCHES))
    return frozenset(without)


def simplify(graph: Graph, changing: Collection[str], without: Collection[str] = ()) -> Graph:
    """A forward graph with everything computed that does not change."""
    for step in FORWARD:
        if step.__name__ not in without:
            graph = step(graph, changing)
    return graph


def optimise(graph: Graph, without: Collection[str] = ()) -> Graph:
    """An entry point that needs less memory and time, and means the same."""
    for step in PIPELINE:
        if step.__name__ not in without:
            graph = step(graph)
            verify(graph)
    return graph


__all__ = ["Part", "check_switches", "optimise", "simplify", "split_channels"]
