"""Adapters bring a tensor of the student to the shape of the teacher's; they train with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ....errors import FrontendError
from .losses import pooled
from .terms import Term

Size = tuple[int, int]


class Adapter(nn.Module):
    """Means over cells of an image, then a linear map of its channels; each only where needed."""

    def __init__(self, size: Size | None, linear: nn.Module | None) -> None:
        super().__init__()
        self.size, self.linear = size, linear

    def forward(self, x: Tensor) -> Tensor:
        if self.size is not None:
            x = pooled(x, self.size)
        return x if self.linear is None else self.linear(x)


class WeightAdapter(nn.Module):
    """A weight [o, i, ...] times a matrix for its outputs and one for its inputs."""

    def __init__(self, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        super().__init__()
        self.maps = nn.ParameterList(
            nn.Parameter(nn.init.orthogonal_(torch.empty(b, a)))
            for a, b in zip(ours[:2], theirs[:2], strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        for axis, matrix in enumerate(self.maps):
            x = torch.tensordot(matrix, x, dims=([1], [axis])).movedim(0, axis)
        return x


def adapter_of(term: Term, ours: Tensor, theirs: Tensor) -> tuple[nn.Module | None, Size | None]:
    """What adapts the student's tensor, and the size that the teacher's is pooled to."""
    mine, other = tuple(ours.shape), tuple(theirs.shape)
    if term.bridge == "weights":
        return weight_adapter(term, mine, other), None
    if term.bridge == "nothing":
        return None, None
    if term.bridge == "classes":
        if mine != other:
            raise FrontendError(
                f"the student predicts {mine[1:]} numbers a sample, the teacher {other[1:]}",
                why="their classes must be the same for logits to be compared",
                try_="a loss between layers, such as Features, Attention or Selectivity",
            )
        return None, None
    check_ranks(term, mine, other)
    size = shrunk = None
    if len(mine) == 4:
        size, shrunk = meeting(term, mine, other)
    elif term.bridge == "space" or mine[1:-1] != other[1:-1]:
        raise cannot(term, mine, other)
    linear = None if term.bridge == "space" else linear_between(mine, other)
    return (None if size is None and linear is None else Adapter(size, linear)), shrunk


def linear_between(mine: tuple[int, ...], other: tuple[int, ...]) -> nn.Module | None:
    """Between the channels: the second axis of images, the last of anything else."""
    axis = 1 if len(mine) == 4 else -1
    if mine[axis] == other[axis]:
        return None
    if len(mine) == 4:
        return nn.Conv2d(mine[1], other[1], 1)
    return nn.Linear(mine[-1], other[-1])


def meeting(term: Term, mine: tuple[int, ...], other: tuple[int, ...]) -> tuple[Size | None, ...]:
    """The size to pool the student's images to, or the teacher's: the larger one is pooled."""
    ours, theirs = (mine[2], mine[3]), (other[2], other[3])
    if ours == theirs:
        return None, None
    if all(a <= b for a, b in zip(ours, theirs, strict=True)):
        return None, ours
    if all(a % b == 0 for a, b in zip(ours, theirs, strict=True)):
        return theirs, None
    raise cannot(term, mine, other, "a size of the student must be a multiple of the teacher's")


def check_ranks(term: Term, mine: tuple[int, ...], other: tuple[int, ...]) -> None:
    if len(mine) != len(other) or len(mine) not in (2, 3, 4):
        raise cannot(term, mine, other, "they have different numbers of axes")
    if term.bridge == "space" and len(mine) != 4:
        raise cannot(term, mine, other, "it compares images [batch, channels, height, width]")


def weight_adapter(
    term: Term, mine: tuple[int, ...], other: tuple[int, ...]
) -> WeightAdapter | None:
    if mine == other:
        return None
    if len(mine) < 2 or len(mine) != len(other) or mine[2:] != other[2:]:
        raise cannot(term, mine, other, "only the first two axes can be mapped")
    return WeightAdapter(mine, other)


def cannot(
    term: Term, mine: tuple[int, ...], other: tuple[int, ...], why: str = "no adapter does that"
) -> FrontendError:
    return FrontendError(
        f"{term.name}: the student's tensor {mine} cannot be brought to the teacher's {other}",
        why=why,
        try_="layers whose shapes are closer",
    )
