"""Fourier transforms, as products with known matrices."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ....ir import Array
from ..rows import Call, row
from .moving import positive


def matrices(size: int, inverse: bool) -> tuple[Array, Array]:
    """Real and imaginary part of the transform of `size` numbers."""
    k = np.arange(size)
    angle = (2 if inverse else -2) * np.pi * (k[:, None] * k[None, :] % size) / size
    scale = 1 / size if inverse else 1.0
    return np.cos(angle) * scale, np.sin(angle) * scale


def transformed(x: Tensor, size: int, inverse: bool, onesided: bool) -> Tensor:
    """Of the axis before the last; the last one has the real number, or both parts."""
    now = x.shape[-2]
    if now > size:
        x = x.narrow(-2, 0, size)
    elif now < size:
        x = torch.nn.functional.pad(x, [0, 0, 0, size - now])
    real, imaginary = (torch.from_numpy(m).to(x.dtype) for m in matrices(size, inverse))
    if onesided:
        real, imaginary = real[: size // 2 + 1], imaginary[: size // 2 + 1]
    a = x[..., 0]
    parts = [a @ real.T, a @ imaginary.T]
    if x.shape[-1] == 2:
        b = x[..., 1]
        parts = [parts[0] - b @ imaginary.T, parts[1] + b @ real.T]
    return torch.stack(parts, dim=-1)


@row("DFT", known=(1, 2))
def dft(c: Call, x: Tensor, length: Array | None = None, axis: Array | None = None) -> Tensor:
    where = c.attr("axis", 1) if c.version < 20 else -2 if axis is None else int(axis)
    where = positive(where, x.ndim)
    if where == x.ndim - 1 or x.shape[-1] not in (1, 2):
        c.refuse("the axis of real and imaginary parts")
    inverse, onesided = c.flag("inverse"), c.flag("onesided")
    moved = x.transpose(where, x.ndim - 2)
    if inverse and onesided:
        size = 2 * (moved.shape[-2] - 1) if length is None else int(length)
        half = moved.narrow(-2, 0, min(moved.shape[-2], size // 2 + 1))
        rest = half[..., 1 : size - half.shape[-2] + 1, :].flip(-2)
        signs = torch.tensor([1.0, -1.0], dtype=x.dtype)
        whole = torch.cat([half, rest * signs], dim=-2)
        return transformed(whole, size, True, False)[..., :1].transpose(where, x.ndim - 2)
    size = moved.shape[-2] if length is None else int(length)
    return transformed(moved, size, inverse, onesided).transpose(where, x.ndim - 2)


@row("STFT", known=(1, 3))
def stft(
    c: Call, x: Tensor, step: Array, window: Tensor | None = None, length: Array | None = None
) -> Tensor:
    if length is None and window is None:
        c.refuse("neither a window nor the length of a frame")
    size = int(length) if length is not None else int(window.shape[0])  # type: ignore[union-attr]
    x = x.unsqueeze(-1) if x.ndim == 2 else x
    count = (x.shape[1] - size) // int(step) + 1
    frames = torch.stack([x.narrow(1, i * int(step), size) for i in range(count)], dim=1)
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    return transformed(frames, size, False, c.flag("onesided", 1))
