"""Unsigned 32-bit numbers in LEB128: seven bits a byte, the lowest first, the top bit set on all
but the last."""

from __future__ import annotations

import numpy as np

from ..ir import Array

MOST = 5  # bytes of a number


def encode(numbers: Array) -> bytes:
    rest = np.asarray(numbers, np.uint64)
    septets = (rest[:, None] >> np.arange(0, 7 * MOST, 7, dtype=np.uint64)).astype(np.uint64)
    used = septets != 0
    used[:, 0] = True  # zero takes a byte, too
    more = used[:, 1:] * np.uint64(0x80)
    bytes_ = septets & np.uint64(0x7F)
    bytes_[:, :-1] |= more
    return bytes_[used].astype(np.uint8).tobytes()


def decode(packed: memoryview | bytes, count: int) -> Array:
    """Exactly `count` numbers as uint64; ValueError, which says why, for anything else."""
    given = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(given < 0x80)
    if len(ends) != count or (len(given) and (not count or ends[-1] != len(given) - 1)):
        raise ValueError(f"there are {len(ends)} whole numbers, not {count}")
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if count else ends
    lengths = ends - starts + 1
    if count and lengths.max() > MOST:
        raise ValueError(f"a number takes {int(lengths.max())} bytes, at most {MOST} are allowed")
    if ((lengths > 1) & (given[ends] == 0)).any():
        raise ValueError("a number takes more bytes than it needs")
    if ((lengths == MOST) & (given[ends] > 0x0F)).any():
        raise ValueError("a number does not fit into 32 bits")
    found = np.zeros(count, np.uint64)
    for k in range(MOST):
        has = lengths > k
        septet = given[starts[has] + k].astype(np.uint64) & np.uint64(0x7F)
        found[has] |= septet << np.uint64(7 * k)
    return found
