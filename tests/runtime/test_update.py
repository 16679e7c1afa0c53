"""The format of updates: every coding makes the round trip, and everything else is refused."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import hostile, put, sealed
from whet.errors import UpdateError
from whet.runtime import varint
from whet.runtime.update import CODINGS, HEADER, Update, decode, encode, quantize

MODEL = 0x12345678


def update(coding: str = "f32", k: int = 5, n: int = 100_000, round: int = 7) -> Update:
    """Gaps of one to three bytes."""
    at = np.array([0, 1, 300, 70_000, n - 1], np.uint32)[:k]
    return Update(MODEL, round, n, at, np.linspace(-2, 3, 5, dtype=np.float32)[:k], coding)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    n = draw(st.integers(0, 40))
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    at = draw(st.none() | st.lists(st.integers(0, n - 1), unique=True) if n else st.none())
    count = n if at is None else len(at)
    values = np.array(draw(st.lists(floats, min_size=count, max_size=count)), np.float32)
    where = None if at is None else np.array(sorted(at), np.uint32)
    words = st.integers(0, 2**32 - 1)
    return Update(draw(words), draw(words), n, where, values, draw(st.sampled_from([*CODINGS])))


@given(updates())
def test_an_update_makes_the_round_trip(sent: Update) -> None:
    blob = encode(sent)
    read = decode(blob, sent.fingerprint, sent.n, sent.round)
    assert (read.fingerprint, read.round, read.n) == (sent.fingerprint, sent.round, sent.n)
    assert (read.indices is None) == (sent.indices is None) and read.coding == sent.coding
    if sent.indices is not None:
        assert np.array_equal(read.indices, sent.indices)
    if sent.coding == "f32":
        assert read.values.tobytes() == sent.values.tobytes()
    elif sent.coding == "f16":
        halves = np.clip(sent.values, -65504, 65504).astype(np.float16)
        assert np.array_equal(read.values, halves.astype(np.float32))
    elif sent.k:
        largest = np.abs(sent.values.astype(np.float64)).max()
        half = max(largest / np.iinfo(CODINGS[sent.coding]).max, np.finfo(np.float32).tiny) / 2
        assert np.abs(read.values - sent.values.astype(np.float64)).max() <= half * 1.001 + (
            2**-23 * largest
        )
    if sent.coding != "i32":  # of which float32 does not hold all digits
        assert encode(read) == blob, "what was read is written as the same bytes"


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_numbers_of_any_length_make_the_round_trip(numbers: list[int]) -> None:
    packed = varint.encode(np.array(numbers, np.uint64))
    lengths = [max(1, -(-number.bit_length() // 7)) for number in numbers]
    assert len(packed) == sum(lengths)
    assert varint.decode(packed, len(numbers)).tolist() == numbers


def test_the_bytes_are_those_of_the_format() -> None:
    sent = Update(0xA1B2C3D4, 9, 1000, np.array([3, 4, 300]), np.array([1, -2, 4.0]), "f16")
    tail = struct.pack("<IIBBHf", 1000, 3, 1, 1, 0, 1.0) + bytes([3, 0, 0xA7, 0x02])
    tail += struct.pack("<3e", 1, -2, 4)
    head = struct.pack("<4sIIII", b"WHUP", 1, 0xA1B2C3D4, 9, zlib.crc32(tail))
    assert encode(sent) == head + tail and len(tail) == 16 + 4 + 6
    dense = encode(Update(1, 2, 2, None, np.array([0.5, -127.0]), "i8"))
    assert dense[36:] == bytes([0, 129]) and struct.unpack("<f", dense[32:36]) == (1.0,)


def test_integers_and_halves_saturate() -> None:
    codes, scale = quantize(np.array([1e6, -7e4, 3.0], np.float32), "f16")
    assert codes.tolist() == [65504, -65504, 3] and scale == 1.0
    codes, scale = quantize(np.array([2.0, -1.0, 0.001], np.float32), "i8")
    assert codes.tolist() == [127, -64, 0] and scale == np.float32(2 / 127)
    codes, scale = quantize(np.array([2.0, -1.0, 1e-5], np.float32), "i16")
    assert codes.tolist() == [32767, -16384, 0]
    codes, scale = quantize(np.array([3.0, 1e9, -1e9], np.float32), "i8", 0.5)
    assert codes.tolist() == [6, 127, -128] and scale == 0.5
    for nothing in (np.zeros(3, np.float32), np.zeros(0, np.float32)):
        assert quantize(nothing, "i8")[1] == 1.0


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda b: b"", "shorter than a header"),
    "half a header": (lambda b: b[:35], "shorter than a header"),
    "other letters": (lambda b: b"WHET" + b[4:], "not an update"),
    "other version": (lambda b: b[:4] + b"\2\0\0\0" + b[8:], "another version"),
    "other model": (lambda b: b[:8] + b"\0" + b[9:], "another model"),
    "a changed bit": (lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:], "checksum"),
    "last byte missing": (lambda b: b[:-1], "checksum"),
    "cut and sealed": (lambda b: sealed(b[:40]), "21 bytes are missing"),
    "old round": (lambda b: b[:12] + b"\6" + b[13:], "it is of round 6"),
    "other size": (put(20, "<I", 99_999), "99,999 coordinates"),
    "unknown values": (put(28, "<B", 5), "values have the coding 5"),
    "unknown indices": (put(29, "<B", 2), "indices have the coding 2"),
    "reserved": (put(30, "<H", 256), "reserved bytes"),
    "more than all": (put(24, "<I", 100_001), "sends 100,001 coordinates"),
    "dense, but not all": (put(29, "<B", 0), "as a dense update of 100,000"),
    "very many": (put(24, "<I", 90_000), "shorter than it says"),
    "none, but some bytes": (put(24, "<I", 0), "longer than it says"),
    "scale of a float": (put(32, "<f", 2.0), "its scale is 2.0"),
    "nan": (put(46, "<f", float("nan")), "1 of 5 values are NaN"),
    "inf": (put(62, "<f", float("-inf")), "1 of 5 values are NaN"),
    "one byte between": (lambda b: sealed(b[:36] + b"\0" + b[36:]), "indices are malformed"),
    "index too large": (lambda b: sealed(b[:45] + b"\x03" + b[46:]), "it has an index of"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused_with_a_reason(name: str) -> None:
    change, words = BROKEN[name]
    good = encode(update())
    assert len(good) == 36 + (1 + 1 + 2 + 3 + 3) + 20 and good[45] == 0x01
    assert decode(good, MODEL, 100_000, 7).k == 5
    with pytest.raises(UpdateError, match="the update is refused") as error:
        decode(change(good), MODEL, 100_000, 7, where="client 3")
    assert words in str(error.value) and "W404" in str(error.value)
    assert "client 3, " in str(error.value)


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"\x80\x80\x80\x80\x80\x01", "6 bytes"),
        (b"\xff\xff\xff\xff\x10", "32 bits"),
        (b"\x81\x00", "more bytes than it needs"),
        (b"\x81", "0 whole numbers"),
        (b"\x01\x01", "2 whole numbers"),
        (b"", "0 whole numbers"),
    ],
)
def test_numbers_have_one_spelling(packed: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        varint.decode(packed, 1)


def test_gaps_that_overflow_are_refused() -> None:
    """Added up in 32 bits they would be indices again."""
    tail = struct.pack("<IIBBHf", 10, 3, 0, 1, 0, 1.0) + b"\xff\xff\xff\xff\x0f" * 2 + b"\x05"
    blob = sealed(struct.pack("<4sIIII", b"WHUP", 1, 1, 1, 0) + tail + bytes(12))
    with pytest.raises(UpdateError, match="an index of 8,589,934,597"):
        decode(blob)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_is_a_positive_number(scale: float) -> None:
    with pytest.raises(UpdateError, match="its scale is"):
        decode(put(32, "<f", scale)(encode(update("i8"))))
    with pytest.raises(UpdateError, match="its scale is"):
        encode(replace(update("i8"), scale=scale))


def test_integers_times_a_huge_scale_are_not_finite() -> None:
    with pytest.raises(UpdateError, match="not finite"):
        decode(put(32, "<f", 3e38)(encode(update("i8"))))


def test_indices_may_name_every_coordinate() -> None:
    """Longer than a dense update, and just as clear."""
    sent = Update(MODEL, 1, 3, np.arange(3), np.ones(3, np.float32))
    assert decode(encode(sent)).dense().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"coding": "f64"}, "no coding 'f64'"),
        ({"round": -1}, "round=-1"),
        ({"n": 2**32}, "n=4294967296"),
        ({"n": 70_001}, "do not rise"),
        ({"indices": np.array([1, 1, 2, 3, 4])}, "do not rise"),
        ({"indices": np.array([-1, 1, 2, 3, 4])}, "do not rise"),
        ({"indices": np.arange(4)}, "4 indices and 5 values"),
        ({"indices": None}, "5 values are not a dense update"),
        ({"values": np.array([1, 2, 3, 4, np.nan])}, "not finite"),
    ],
)
def test_nothing_is_written_that_would_be_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UpdateError, match=words):
        encode(replace(update(), **wrong))  # type: ignore[arg-type]


def test_ten_thousand_hostile_updates_are_read_or_refused() -> None:
    rng = random.Random(0)
    good = [encode(update(coding, k)) for coding in CODINGS for k in (0, 1, 5)]
    good += [encode(Update(MODEL, 7, 9, None, np.arange(9.0), coding)) for coding in CODINGS]
    read = 0
    tracemalloc.start()
    for _ in range(10_000):
        blob = hostile(rng, good)
        try:
            found = decode(blob)
        except UpdateError:
            continue
        read += 1
        assert found.k <= found.n and np.isfinite(found.values).all()
        if found.indices is not None and found.k:
            assert (np.diff(found.indices.astype(np.int64)) > 0).all()
            assert found.indices[-1] < found.n
        assert decode(encode(found)).k == found.k
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 300 < read < 5000, "some get through, or the fuzzer tries nothing but the checksum"
    assert peak < 1 << 20


@settings(max_examples=300)
@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_behind_a_header_are_read_or_refused(tail: bytes, right: bool) -> None:
    blob = HEADER.pack(b"WHUP", 1, 0, 0, 0, 0, 0, 0, 0, 0, 1.0)[:20] + tail
    try:
        decode(sealed(blob) if right else blob)
    except UpdateError:
        pass
