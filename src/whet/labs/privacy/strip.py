"""Pictures side by side as a PNG: the original, what an attack had after so many iterations."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .recovered import Array, Recovered
from .score import pixels

GAP = 2  # pixels between pictures, before they are enlarged


def strip(
    images: Sequence[Any], *, span: tuple[float, float] = (0.0, 1.0), enlarge: int = 3
) -> bytes:
    """One row of pictures [channels, height, width], or one row per sample of batches of them."""
    cells = [pixels(image, span) for image in images]
    cells = [cell[None] if cell.ndim == 3 else cell for cell in cells]
    rows = [row([cell[i] for cell in cells]) for i in range(len(cells[0]))]
    gap = np.ones((GAP, *rows[0].shape[1:]))
    sheet = np.concatenate([part for r in rows for part in (r, gap)][:-1])
    return png(sheet.repeat(enlarge, axis=0).repeat(enlarge, axis=1))


def row(images: Sequence[Array]) -> Array:
    """[height, width, 3], white between pictures."""
    coloured = [np.broadcast_to(i, (3, *i.shape[1:])).transpose(1, 2, 0) for i in images]
    gap = np.ones((coloured[0].shape[0], GAP, 3))
    return np.concatenate([part for i in coloured for part in (i, gap)][:-1], axis=1)


def over_iterations(originals: Any, found: Recovered, count: int = 8) -> list[Array]:
    """The pictures of a strip: originals, `count` snapshots spread over the run, the result.

    The first iterations change most, so the snapshots are spread by ratio.
    """
    last = len(found.history) - 1
    spread = np.rint(np.geomspace(1, max(last, 0) + 1, count)).astype(int) - 1
    chosen = sorted(set(spread.tolist())) if last > 0 else []
    return [np.asarray(originals), *(found.history[i].images for i in chosen), found.images]


def png(image: Array) -> bytes:
    """[height, width, 3] from 0 to 1 as an 8-bit RGB PNG (ISO/IEC 15948)."""
    data = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    height, width, _ = data.shape
    lines = b"".join(b"\0" + line.tobytes() for line in data)  # filter 0 in front of each line

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )  # fmt: skip
