"""How samples are written down: a collector, and tensors that are the same on every run.

A sample names the handler it is for; that it was indeed called is part of the check. Operands are
given as tensors or, for normally distributed numbers, as shapes. Unless a sample says otherwise
its first floating-point operand is an input of the model and the others are parameters; `placed`
adds the other ways to be an operand: stored differently, constant, or without a gradient.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torch_oracle import EXACT, Case

aten = torch.ops.aten
Operand = Tensor | tuple[int, ...]
IMAGE = (2, 6, 5, 7)


class Samples:
    """Collects cases; every one draws its operands from a generator of its own."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.counts: dict[str, int] = {}

    def add(
        self, handler: str, f: Callable[..., Any], *operands: Operand, kinds: str = "",
        exact: float = EXACT, stays: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        count = self.counts[handler] = self.counts.get(handler, 0) + 1
        name = f"{handler}-{count}"
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        tensors = tuple(
            x if isinstance(x, Tensor) else torch.randn(x, generator=generator) for x in operands
        )
        kinds = kinds or usual_kinds(tensors)
        self.cases.append(Case(name, f, tensors, kinds, handler, exact, stays))


def usual_kinds(tensors: tuple[Tensor, ...]) -> str:
    kinds = ""
    for tensor in tensors:
        if not tensor.is_floating_point():
            kinds += "d"
        else:
            kinds += "p" if "i" in kinds else "i"
    return kinds


def placed(case: Case) -> Iterator[Case]:
    """The case, and the same with its operands stored or held differently."""
    yield case
    floats = [i for i, kind in enumerate(case.kinds) if kind in "ip" and i not in case.stays]
    ways = ["p", "ci", "ic", "pi"] if len(floats) > 1 else ["p"]
    for way in ways:
        kinds = list(case.kinds)
        for rank, i in enumerate(floats):
            kinds[i] = way[min(rank, len(way) - 1)]
        yield replace(case, name=f"{case.name}-{way}", kinds="".join(kinds))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def positive(*shape: int, seed: int = 0) -> Tensor:
    """Between 0.1 and 3."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2.9 + 0.1


def halves(*shape: int, seed: int = 0) -> Tensor:
    """Multiples of 1/2 in [-4, 4]: many are equal, and many lie on a corner."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)) / 2


def ids(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(seed))


def bits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).bool()


def spread(n: int) -> Tensor:
    """Corners of the usual activations, their neighbours, and some large numbers."""
    corners = torch.tensor([0.0, 6.0, -3.0, 3.0, 1.0, -1.0, 20.0, -20.0, 30.0, -90.0, 88.0, 0.5])
    return torch.cat([corners, torch.linspace(-7, 7, n)])
