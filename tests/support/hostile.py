"""Updates as they should not be."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable


def sealed(blob: bytes) -> bytes:
    """With a checksum that is right again."""
    return blob[:16] + struct.pack("<I", zlib.crc32(blob[20:])) + blob[20:]


def put(at: int, fmt: str, number: float) -> Callable[[bytes], bytes]:
    end = at + struct.calcsize(fmt)
    return lambda b: sealed(b[:at] + struct.pack(fmt, number) + b[end:])


def hostile(rng: random.Random, good: list[bytes]) -> bytes:
    """Noise, or a good update that was changed, cut, extended or spliced, sealed or not."""
    a, b = rng.choice(good), rng.choice(good)
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(80))
    if kind == 1:
        blob = bytearray(a)
        for _ in range(rng.randrange(1, 5)):
            blob[rng.randrange(len(blob))] = rng.randrange(256)
        found = bytes(blob)
    elif kind == 2:
        found = a[: rng.randrange(len(a))]
    elif kind == 3:
        found = a + rng.randbytes(rng.randrange(1, 20))
    elif kind == 4:
        found = a[: rng.randrange(len(a))] + b[rng.randrange(len(b)) :]
    else:
        at = rng.choice([20, 24, 28, 29, 32])
        found = a[:at] + rng.randbytes(4) + a[at + 4 :]
    return sealed(found) if len(found) >= 20 and rng.random() < 0.7 else found
