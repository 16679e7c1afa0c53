"""Sequences of any length, for programs that are compiled for one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import DataError
from .tasks import IGNORED


class Padded(NamedTuple):
    """Tensors [n, length] of int64."""

    ids: Tensor
    mask: Tensor  # 1 where a sequence is, 0 where it was filled up
    labels: Tensor


def pad(
    sequences: Sequence[Sequence[int]],
    length: int | Sequence[int],
    labels: Sequence[Sequence[int]] | None = None,
    token: int = 0,
) -> Padded:
    """Sequences of ids, filled up with `token` on the right, with labels of -100 there.

    `labels` are the ids themselves unless given. In a causal model no position sees those on its
    right, so the loss and the gradients of a padded sequence are those of the sequence itself; an
    encoder needs the mask for that. Of several lengths, as `program.lengths` has them, the shortest
    is taken that all sequences fit in.
    """
    wanted = sequences if labels is None else labels
    lengths = [len(row) for row in sequences]
    if not lengths:
        raise DataError("there are no sequences")
    if [len(row) for row in wanted] != lengths:
        raise DataError("every sequence needs as many labels as it has ids")
    if not isinstance(length, int):
        if not length:
            raise DataError("there are no lengths", try_="a number, or a program with lengths=")
        length = min((n for n in length if n >= max(lengths)), default=max(length))
    for i, size in enumerate(lengths):
        if not 0 < size <= length:
            raise DataError(
                f"sequence {i} has {size} tokens; there is room for {length}",
                try_=f"cut it, or compile for sequences of {size}" if size else "leave it out",
            )
    there = [[1] * size for size in lengths]
    return Padded(
        filled(sequences, length, token), filled(there, length, 0), filled(wanted, length, IGNORED)
    )


def filled(rows: Sequence[Any], length: int, value: int) -> Tensor:
    made = torch.full((len(rows), length), value, dtype=torch.int64)
    for line, row in zip(made, rows, strict=True):
        line[: len(row)] = torch.as_tensor(row, dtype=torch.int64)
    return made
