"""The update that a device sends, in NumPy: what kernels/ref/delta.c must give, byte for byte."""

from __future__ import annotations

import struct
import zlib
from decimal import Decimal, localcontext

import numpy as np

import whet
from whet.ir import Array, Relation

DEVIATION = 16
CODES = {"f32": 0, "f16": 1, "i8": 2, "i16": 3}


def chacha20(key: bytes, block: int, nonce: tuple[int, int, int]) -> list[int]:
    """The 16 words of a block (RFC 8439, section 2.3)."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    start += [*struct.unpack("<8I", key), block, *nonce]
    s = list(start)

    def rotated(x: int, n: int) -> int:
        return (x << n | x >> (32 - n)) & 0xFFFFFFFF

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[p] = (s[p] + s[q]) & 0xFFFFFFFF
            s[r] = rotated(s[r] ^ s[p], n)

    for _ in range(10):
        for k in range(4):
            quarter(k, 4 + k, 8 + k, 12 + k)
        for k in range(4):
            quarter(k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    return [(x + y) & 0xFFFFFFFF for x, y in zip(s, start, strict=True)]


def gaussian_table() -> list[int]:
    """2^63 times the probability that |z| is at most 0, 1, 2, ..."""
    with localcontext() as context:
        context.prec = 60
        weights = [(-(Decimal(m) * m) / (2 * DEVIATION**2)).exp() for m in range(400)]
        total = weights[0] + 2 * sum(weights[1:])
        sums, found = Decimal(0), []
        for m, weight in enumerate(weights):
            sums += weight if m == 0 else 2 * weight
            found.append(int((sums / total * 2**63).to_integral_value()))
    return [x for x in found if x < 2**63]


def noise(n: int, key: bytes, round: int) -> Array:
    """n independent samples of the discrete Gaussian."""
    words = [w for b in range(-(-n // 8)) for w in chacha20(key, b, (round, 0, 0))]
    bits = [low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)][:n]
    sizes = np.searchsorted(
        np.array(gaussian_table(), np.uint64),
        np.array([b >> 1 for b in bits], np.uint64),
        side="right",
    )
    return np.where([b & 1 for b in bits], -sizes, sizes)


def changes(trainer: whet.Trainer) -> Array:
    """By how much every parameter differs from its base, in real units, as float32."""
    program = trainer.program
    leaves = {v.name: v for g in program.entries.values() for v in g.leaves if v.link}
    linked = {(v.link.relation, v.link.of): name for name, v in leaves.items() if v.link}
    parts = []
    for name, kind in program.storage.params.items():
        now = linked.get((Relation.MASTER, name), name)
        x = difference(trainer, now, linked[Relation.BASE, now])
        if carry := linked.get((Relation.CARRY, name)):
            unit = np.float32({1: 256, 2: 65536}[program.storage.state[carry].dtype.size])
            x = x - difference(trainer, carry, linked[Relation.BASE, carry]) / unit
        if unit := program.integer_rules.units.get(name):
            sizes = program.entries["train_step"].data[unit.scale] * unit.unit
            sizes = sizes[list(unit.channels)] if unit.channels is not None else sizes
            along = [1] * len(kind.shape)
            along[unit.axis] = -1
            x = (x.reshape(kind.shape) * np.float32(sizes).reshape(along)).ravel()
        parts.append(x)
    return np.concatenate(parts)


def difference(trainer: whet.Trainer, now: str, base: str) -> Array:
    a, b = trainer.stored(now), trainer.stored(base)
    return a.astype(np.float32) - b.astype(np.float32)


def update(x: Array, send: whet.Send, model: int, round: int, key: bytes) -> bytes:
    """The bytes to send for changes x."""
    n, k = len(x), send.count(len(x))
    norm = np.sqrt(np.float32((x.astype(np.float64) ** 2).cumsum()[-1]))
    if send.clip is not None and norm > (limit := np.float32(send.clip) * np.float32(0.99999)):
        x = x * (limit / norm)
    scale = np.float32(1)
    if send.noise:
        scale = np.float32(send.grid)
        x = (np.trunc(x / scale) + noise(n, key, round)).clip(-32767, 32767).astype(np.float32)
    elif send.coding == "i8":
        largest = np.abs(x).max()
        scale = max(largest / np.float32(127), np.finfo("f4").tiny) if largest else np.float32(1)
    order = np.argsort(-np.abs(x), kind="stable")  # ties: the first ones
    index = np.sort(order[:k])
    gaps = varints(np.diff(index, prepend=-1) - 1) if k < n else b""
    flags = bytes([CODES[send.coding], k < n, 0, 0])
    head = struct.pack("<II", n, k) + flags + struct.pack("<f", scale)
    body = head + gaps + coded(x[index], send.coding, scale)
    return struct.pack("<4sIIII", b"WHUP", 1, model, round, zlib.crc32(body)) + body


def coded(x: Array, coding: str, scale: np.float32) -> bytes:
    if coding == "i8":
        steps = x / scale
        return np.trunc(steps + np.where(steps < 0, -0.5, 0.5).astype("f4")).astype("i1").tobytes()
    if coding == "f16":
        return np.clip(x, -65504, 65504).astype("<f2").tobytes()
    return x.astype({"f32": "<f4", "i16": "<i2"}[coding]).tobytes()


def varints(numbers: Array) -> bytes:
    found = bytearray()
    for number in map(int, numbers):
        while number >= 128:
            found.append(number & 127 | 128)
            number >>= 7
        found.append(number)
    return bytes(found)
