"""Calls in Thumb machine code."""

from __future__ import annotations

from collections.abc import Iterator


def calls(code: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Every call in Thumb code, and where it goes: BL, which is two halfwords."""
    halves = [int.from_bytes(code[i : i + 2], "little") for i in range(0, len(code) - 1, 2)]
    i = 0
    while i < len(halves):
        first = halves[i]
        wide = first >> 11 in (0b11101, 0b11110, 0b11111)
        if wide and i + 1 < len(halves) and first >> 11 == 0b11110:
            second = halves[i + 1]
            if second & 0xD000 == 0xD000:
                at = begin + 2 * i
                yield at, at + 4 + branch_offset(first, second)
        i += 2 if wide else 1


def branch_offset(first: int, second: int) -> int:
    """How far a BL goes: a sign, two bits stored mixed with it, and 21 bits of halfwords."""
    sign = first >> 10 & 1
    high = 1 - ((second >> 13 & 1) ^ sign)
    low = 1 - ((second >> 11 & 1) ^ sign)
    bits = high << 23 | low << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1
    return bits - (sign << 24)
