"""Calls in RISC-V machine code."""

from __future__ import annotations

from collections.abc import Iterator

RA = 1  # the register with the return address
JAL, JALR, AUIPC = 0x6F, 0x67, 0x17


def calls(code: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Every call, and where it goes: JAL, C.JAL, or AUIPC and JALR with one register."""
    upper: dict[int, int] = {}  # by register: what the AUIPC just before put there
    i = 0
    while i + 2 <= len(code):
        at = begin + i
        word = int.from_bytes(code[i : i + 4], "little")
        if word & 3 != 3:  # 16 bits
            if word & 0xE003 == 0x2001:
                yield at, at + compressed_offset(word & 0xFFFF)
            upper, i = {}, i + 2
            continue
        opcode, to, base = word & 0x7F, word >> 7 & 31, word >> 15 & 31
        if opcode == JAL and to == RA:
            yield at, at + jump_offset(word)
        elif opcode == JALR and to == RA and base in upper:
            yield at, (upper[base] + signed(word >> 20, 12)) & 0xFFFFFFFF
        upper = {to: at + signed(word >> 12, 20) * 4096} if opcode == AUIPC else {}
        i += 4


def signed(bits: int, width: int) -> int:
    return bits - (bits >> width - 1 << width)


def gathered(word: int, places: tuple[tuple[int, int, int], ...]) -> int:
    """Bits from everywhere in a word: (lowest bit in it, how many, lowest bit of the result)."""
    return sum((word >> at & (1 << count) - 1) << to for at, count, to in places)


def jump_offset(word: int) -> int:
    return signed(gathered(word, ((21, 10, 1), (20, 1, 11), (12, 8, 12), (31, 1, 20))), 21)


def compressed_offset(half: int) -> int:
    places = (
        (3, 3, 1), (11, 1, 4), (2, 1, 5), (7, 1, 6), (6, 1, 7), (9, 2, 8), (8, 1, 10), (12, 1, 11),
    )  # fmt: skip
    return signed(gathered(half, places), 12)
