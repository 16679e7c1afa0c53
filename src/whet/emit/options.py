"""What a program is like, besides its model and its scheme."""

from __future__ import annotations

from dataclasses import dataclass

from ..passes import Recompute
from ..passes.machine import UNTUNED, Machine
from ..targets import HOST, Target


@dataclass(frozen=True)
class Options:
    name: str = "net"
    accumulate: bool = False  # entry points `gradients` and `apply`
    without: frozenset[str] = frozenset()  # passes to leave out
    recompute: Recompute | None = None  # what may be computed twice
    target: Target = HOST
    machine: Machine = UNTUNED  # that the kernels are chosen for
    grow: bool = True  # a large program may take a tenth more memory for faster kernels
    narrow: bool = False  # frozen weights are stored in 8 bits where those make them up
    single: bool = True  # a program for batches also predicts one sample
