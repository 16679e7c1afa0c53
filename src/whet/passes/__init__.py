"""Graph -> Graph functions that keep the meaning and make the program smaller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..errors import FrontendError
from ..ir import Graph, verify
from ..machine import Machine
from ..plan import lifetimes, plan
from .add_parts import add_parts
from .choose_kernels import choose_kernels
from .drop_masks import drop_masks
from .fold_batch_norm import fold_batch_norm
from .fold_constants import fold_constants
from .fuse_layers import fuse_layers
from .fuse_narrow import fuse_narrow
from .fuse_norms import fuse_norms
from .fuse_updates import fuse_updates
from .keep_bits import keep_bits
from .narrow_frozen import narrow_frozen
from .narrow_gradients import narrow_gradients
from .one_sample import one_sample
from .rematerialize import rematerialize
from .renew_norms import renew_norms
from .reorder import reorder
from .schedule import schedule
from .share_common import share_common
from .split_channels import Part, split_channels
from .stream_rows import stream_rows

Forward = Callable[[Graph, Collection[str]], Graph]
Pass = Callable[[Graph], Graph]

# On the model, before differentiation: each is told which leaves change while training.
FORWARD: tuple[Forward, ...] = (fold_batch_norm, fold_constants, fuse_norms)

# On every entry point, after differentiation. Rematerialization, if it is asked for, comes
# between the two: it needs the updates in their places and layers not yet fused.
EARLY: tuple[Pass, ...] = (share_common, drop_masks, add_parts, keep_bits, renew_norms, reorder)
LATE: tuple[Pass, ...] = (fuse_narrow, fuse_layers, fuse_updates, stream_rows, schedule)

SWITCHES = (*(p.__name__ for p in (*FORWARD, *EARLY, *LATE, choose_kernels, one_sample)), "inplace")


def check_switches(without: Collection[str]) -> frozenset[str]:
    """Passes to leave out; without `reorder` nothing else may move the updates either."""
    without = [without] if isinstance(without, str) else without
    for name in without:
        if name not in SWITCHES:
            raise FrontendError(f"there is no pass {name!r} to leave out", try_=", ".join(SWITCHES))
    moving = {"fuse_updates", "schedule"} if "reorder" in without else set()
    return frozenset(without) | moving


def simplify(graph: Graph, changing: Collection[str], without: Collection[str] = ()) -> Graph:
    """A forward graph with everything computed that does not change."""
    for step in FORWARD:
        if step.__name__ not in without:
            graph = step(graph, changing)
    return graph


@dataclass(frozen=True)
class Recompute:
    """Whether values may be computed twice to save memory, and until the arena is how small."""

    layers: bool = False  # convolutions and matrix products too, not just element-wise work
    limit: int = 0


def optimise(
    graph: Graph,
    without: Collection[str] = (),
    recompute: Recompute | None = None,
    inside: bool = False,
) -> Graph:
    """An entry point that needs less memory and time, and means the same.

    Its inputs may lie `inside` the arena.
    """
    early = _run(EARLY, graph, without)
    done = _run(LATE, early, without, inside)
    if recompute is None:
        return done
    less = rematerialize(early, recompute.limit, recompute.layers, inside)
    again = _run(LATE, less, without, inside)
    return min(done, again, key=lambda g: lifetimes(g, inside=inside).peak[0])


def choose(
    entries: Mapping[str, Graph], machine: Machine, without: Collection[str] = (), growth: int = 0
) -> dict[str, Graph]:
    """The entry points with faster kernels, in an arena that is at most `growth` bytes larger.

    Workspaces leave gaps in the arena that are hard to foresee, so less room is tried then.
    """
    if "choose_kernels" in without:
        return dict(entries)
    inplace = "inplace" not in without
    arena = max(plan(g, inplace).arena for g in entries.values()) + growth
    for limit in (arena, arena * 15 // 16, arena * 7 // 8):
        tight = min(limit, arena - growth)
        chosen = {name: choose_kernels(g, machine, limit, tight) for name, g in entries.items()}
        for graph in chosen.values():
            verify(graph)
        if max(plan(g, inplace).arena for g in chosen.values()) <= arena:
            return chosen
    return dict(entries)


def _run(
    passes: tuple[Pass, ...], graph: Graph, without: Collection[str], inside: bool = False
) -> Graph:
    for step in passes:
        if step.__name__ not in without:
            graph = stream_rows(graph, inside) if step is stream_rows else step(graph)
            verify(graph)
    return graph


__all__ = [
    "SWITCHES", "Part", "Recompute", "check_switches", "choose", "narrow_frozen",
    "narrow_gradients", "one_sample", "optimise", "simplify", "split_channels",
]  # fmt: skip
