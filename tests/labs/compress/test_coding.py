"""Packed numbers and Huffman codes, against their definitions."""

import heapq

import numpy as np
import pytest

from whet.labs.compress import coding
from whet.labs.compress.coding import LONGEST, code_lengths, decode, encode, pack, unpack


def drawn(count: int, symbols: int, seed: int = 0) -> np.ndarray:
    """Symbols with the frequencies of a geometric distribution."""
    random = np.random.default_rng(seed)
    return (
        (random.geometric(min(4 / symbols, 0.7), count) - 1).clip(max=symbols - 1).astype(np.uint8)
    )


@pytest.mark.parametrize("width", range(9))
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_packed_numbers_come_back(width: int, count: int) -> None:
    symbols = np.random.default_rng(width).integers(0, 2**width, count).astype(np.uint8)
    data = pack(symbols, width)
    assert len(data) == (count * width + 7) // 8
    np.testing.assert_array_equal(unpack(memoryview(data), count, width), symbols)


def test_the_first_bit_is_the_most_significant() -> None:
    assert pack(np.array([1, 6, 7]), 3) == bytes([0b00111011, 0b10000000])
    symbols, lengths = np.array([0, 2, 1, 0], np.uint8), np.array([1, 2, 2], np.uint8)
    assert encode(symbols, lengths) == bytes([0b0_11_10_0_00])


def test_lengths_are_the_shortest_there_are() -> None:
    """The total of a Huffman code is the sum of all merged counts."""
    random = np.random.default_rng(0)
    for symbols in (2, 3, 17, 256):
        counts = random.integers(0, 1000, symbols)
        counts[:2] += 1
        lengths = code_lengths(counts)
        assert ((lengths > 0) == (counts > 0)).all()
        heap = [int(n) for n in counts if n]
        heapq.heapify(heap)
        total = 0
        while len(heap) > 1:
            merged = heapq.heappop(heap) + heapq.heappop(heap)
            total += merged
            heapq.heappush(heap, merged)
        assert int((counts * lengths).sum()) == total


def test_long_codes_are_shortened_at_the_least_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fibonacci numbers make the longest codes. With 5 bits, all lengths can be tried."""
    counts = [1, 1]
    while len(counts) < 30:
        counts.append(counts[-1] + counts[-2])
    lengths = code_lengths(np.array(counts))
    assert lengths.max() == LONGEST and sum(2.0 ** -int(n) for n in lengths) == 1
    monkeypatch.setattr(coding, "LONGEST", 3)
    few = np.array(counts[:7])
    found = int((few * code_lengths(few)).sum())
    every = np.stack(np.meshgrid(*[[1, 2, 3]] * 7), -1).reshape(-1, 7)
    allowed = every[(2.0**-every).sum(1) <= 1]
    assert found == (allowed * few).sum(1).min()


@pytest.mark.parametrize("count", [2, 3, 100, 30_000])
@pytest.mark.parametrize("symbols", [2, 31, 256])
def test_huffman_codes_come_back(count: int, symbols: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "BLOCK", 1 << 12)  # borders of blocks inside
    given = drawn(count, symbols)
    given[0], given[-1] = symbols - 1, 0
    counts = np.bincount(given)
    lengths = code_lengths(counts)
    data = encode(given, lengths)
    assert len(data) == (int((counts * lengths).sum()) + 7) // 8
    np.testing.assert_array_equal(decode(memoryview(data), count, lengths), given)
    share = counts[counts > 0] / count
    assert 8 * len(data) <= count * (1 - (share * np.log2(share)).sum()) + 8


@pytest.mark.parametrize(
    ("count", "lengths", "data", "message"),
    [
        (4, [1, 1, 1], b"\0", "do not form a code"),
        (4, [1, 2], b"\0", "do not form a code"),
        (4, [], b"\0", "do not form a code"),
        (4, [0, 0], b"\0", "do not form a code"),
        (4, [1], b"\0", "do not form a code"),
        (9, [1, 1], b"\0", "9 Huffman codes do not fit into 1 bytes"),
        (5, [2, 2, 2, 2], b"\0", "5 Huffman codes do not take 1 bytes"),
        (4, [1, 1], b"\0\0", "4 Huffman codes do not take 2 bytes"),
        (4, [1, 1], b"\1", "bits after the last"),
        (0, [1, 1], b"\0", "0 Huffman codes do not take 1 bytes"),
        (2**62, [1, 1], b"", "do not fit"),
    ],
)
def test_streams_that_lie_are_refused(
    count: int, lengths: list[int], data: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decode(memoryview(data), count, np.array(lengths, np.uint8))


def test_packed_streams_that_lie_are_refused() -> None:
    with pytest.raises(ValueError, match="3 numbers of 4 bits do not take 1 bytes"):
        unpack(memoryview(b"\0"), 3, 4)
    with pytest.raises(ValueError, match="not 0"):
        unpack(memoryview(b"\1"), 1, 4)
