"""The axis order of arrays in words, for model.h, main.c and the docs.

Axes have PyTorch's names: N samples, C channels, L, H x W or D x H x W positions. An axis whose
purpose is unknown is called D.
"""

from __future__ import annotations

SPACE = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def names_of_space(rank: int, space: int) -> tuple[str, ...]:
    """Axis names of the input of a layer over `space` dimensions; a single sample has no N."""
    names = ("N", "C", *SPACE[space])
    return names if rank == len(names) else names[1:]


def names_by_order(order: tuple[int, ...]) -> tuple[str, ...]:
    """Axis names of a spatial layer's result, inferred from its order; empty if it is not one."""
    rank = len(order)
    if rank - 2 in SPACE and order == channels_last(rank):
        return names_of_space(rank, rank - 2)
    if rank - 1 in SPACE and order == (*range(1, rank), 0):
        return names_of_space(rank, rank - 1)
    return ()


def plain_names(rank: int, samples: bool = True) -> tuple[str, ...]:
    """Axis names of an array that no layer explains; the first axis may be the batch."""
    first = ("N",) if samples else ()
    rest = rank - len(first)
    return (*first, "D") if rest == 1 else (*first, *(f"D{i}" for i in range(1, rest + 1)))[:rank]


def channels_last(rank: int) -> tuple[int, ...]:
    """(0, 2, 3, 1) for images, (0, 2, 1) for sequences: batch, space, channels."""
    return (0, *range(2, rank), 1) if rank >= 2 else tuple(range(rank))


def in_words(names: tuple[str, ...], order: tuple[int, ...]) -> str:
    """`N x C x L, as in PyTorch`: stored axis k is PyTorch's axis order[k]."""
    stored = " x ".join(names[axis] for axis in order)
    if order == tuple(range(len(order))):
        return f"{stored}, as in PyTorch"
    last = ", channels last" if order == channels_last(len(order)) and "C" in names else ""
    return f"{stored}{last}; PyTorch has {' x '.join(names)}"
