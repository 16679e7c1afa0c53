"""Variables in which photographs are simple: an adaptive attacker's knowledge about images.

The spectrum of a photograph falls with frequency. Optimising the coefficients of a cosine
transform, each in units of what it usually is, finds the coarse shape first, and where the
gradients leave the image undetermined the result stays smooth.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

KNEE = 4.0  # frequency, in half waves per side, from which coefficients are taken to fall
CONTRAST = 0.1  # of the start, in these units

ToInput = Callable[[Tensor], Tensor]


def images_from(shape: tuple[int, ...], span: tuple[float, float]) -> ToInput:
    """From coefficients to a model's input. What is no picture is only centred and scaled."""
    middle, width = (span[0] + span[1]) / 2, span[1] - span[0]
    if len(shape) != 4:
        return lambda z: middle + width * z
    rows, columns = cosines(shape[2]), cosines(shape[3])
    down, right = torch.arange(shape[2]).double(), torch.arange(shape[3]).double()
    frequency = (down[:, None].square() + right[None].square()).sqrt()
    usual = width * KNEE / (1 + frequency / KNEE)
    return lambda z: middle + rows.T @ (usual * z) @ columns


def cosines(size: int) -> Tensor:
    """The orthonormal discrete cosine transform (type II): one frequency per row."""
    k = torch.arange(size).double()
    matrix = torch.cos(torch.pi * k[:, None] * (2 * k[None] + 1) / (2 * size))
    matrix[0] /= 2**0.5
    return matrix * (2 / size) ** 0.5
