"""Pictures of digits and letters, drawn on the spot: data for the notebooks, without a download."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

DIGITS = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ..##. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. .#... ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. #.... #...# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .###.
"""
LETTERS = """
.###. ####. .#### ####. ##### #...# #...# #...#
#...# #...# #.... #...# #.... #...# #..#. ##.##
#...# #...# #.... #...# #.... #...# #.#.. #.#.#
##### ####. #.... #...# ####. ##### ##... #.#.#
#...# #...# #.... #...# #.... #...# #.#.. #...#
#...# #...# #.... #...# #.... #...# #..#. #...#
#...# ####. .#### ####. ##### #...# #...# #...#
"""


def digits(count: int, seed: int, **style: float) -> tuple[Tensor, Tensor]:
    """Pictures [count, 1, side, side] of the digits 0 to 9, and which digit each shows."""
    return draw(DIGITS, count, seed, **style)


def letters(count: int, seed: int, **style: float) -> tuple[Tensor, Tensor]:
    """The same for eight letters: A, B, C, D, E, H, K and M."""
    return draw(LETTERS, count, seed, **style)


def draw(
    shapes: str, count: int, seed: int, *, tilt: float = 0.0, noise: float = 0.15, side: int = 16
) -> tuple[Tensor, Tensor]:
    """Each shape turned (by `tilt` in the mean), sheared, scaled, moved, and under noise."""
    random = torch.Generator().manual_seed(seed)
    rows = [line.split() for line in shapes.split("\n") if line]
    table = torch.tensor([[[c == "#" for c in word] for word in own] for own in rows]).float()
    table = pad(table.transpose(0, 1), (1, 1))  # [shape, 7, 7]
    labels = torch.randint(len(table), (count,), generator=random)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=random)

    angle, scale = tilt + 0.12 * normal(count), 1.25 + 0.1 * normal(count)
    cos, sin, shear = angle.cos() * scale, angle.sin() * scale, 0.15 * normal(count)
    moved = 0.12 * normal(2, count)
    theta = torch.stack([cos, sin + shear, moved[0], -sin, cos, moved[1]], 1).view(count, 2, 3)
    grid = affine_grid(theta, [count, 1, side, side], align_corners=False)
    pictures = grid_sample(table[labels][:, None], grid, align_corners=False)
    return (pictures + noise * normal(*pictures.shape)).contiguous(), labels
