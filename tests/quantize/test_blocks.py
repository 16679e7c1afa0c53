"""Blocks of GGUF files: what is in them, how floats are rounded to them, and that none is lost."""

from __future__ import annotations

import numpy as np
import pytest

from whet.ir import Array
from whet.models.ggml import FORMATS, widened
from whet.ops._blocks import BLOCKS, ROUNDED, decoded, encoded, held
from whet.quantize.frozen import by_rows, nearest_in

BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20}


def plain(kind: str, block: bytes) -> list[np.float32]:
    """The 32 numbers of one block, one at a time, each operation in float32."""
    d = np.frombuffer(block[:2], "<f2")[0].astype(np.float32)
    if kind == "q8_0":
        return [np.float32(q) * d for q in np.frombuffer(block[2:], np.int8)]
    rest = block[4:] if kind == "q4_1" else block[2:]
    nibbles = [rest[k % 16] & 15 if k < 16 else rest[k % 16] >> 4 for k in range(32)]
    if kind == "q4_0":
        return [np.float32(q - 8) * d for q in nibbles]
    m = np.frombuffer(block[2:4], "<f2")[0].astype(np.float32)
    return [np.float32(q) * d + m for q in nibbles]


def plainly_rounded(kind: str, x: Array) -> bytes:
    """ggml's rule for one block of floats, one number at a time."""
    one, half = np.float32(1), np.float32(0.5)
    if kind == "q8_0":
        d = np.abs(x).max() / np.float32(127)
    elif kind == "q4_0":
        d = x[np.abs(x).argmax()] / np.float32(-8)
    else:
        d = (x.max() - x.min()) / np.float32(15)
    inverse = one / d if d else np.float32(0)
    head = np.float16(d).tobytes()
    if kind == "q8_0":
        scaled = [float(v * inverse) for v in x]
        return head + bytes(int(np.sign(v) * int(abs(v) + 0.5)) & 255 for v in scaled)
    if kind == "q4_0":
        q = [min(15, int(v * inverse + np.float32(8.5))) for v in x]
    else:
        head += np.float16(x.min()).tobytes()
        q = [min(15, int((v - x.min()) * inverse + half)) for v in x]
    return head + bytes(q[k] | q[k + 16] << 4 for k in range(16))


def some_blocks(count: int = 200) -> Array:
    """Of all sizes; some with a mean, some with few values, some constant, some nothing."""
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 32)) * 10.0 ** random.uniform(-3, 3, (count, 1))
    x[::5] += random.normal(size=(len(x[::5]), 1)) * 10
    x[1::5] = np.rint(2 * x[1::5])
    x[2], x[3], x[4] = 0, 0.75, -0.75
    return x.astype(np.float32)


@pytest.mark.parametrize("kind", BLOCKS)
def test_floats_are_rounded_as_the_format_says(kind: str) -> None:
    x = some_blocks()
    data = encoded(kind, x)
    assert data is not None and data.nbytes == len(x) * BYTES[kind]
    blocks = data.reshape(len(x), -1)
    for floats, block in zip(x, blocks, strict=True):
        assert block.tobytes() == plainly_rounded(kind, floats)
    right = np.array([plain(kind, block.tobytes()) for block in blocks])
    assert right.dtype == np.float32
    np.testing.assert_array_equal(decoded(kind, data, x.shape), right)
    steps = {"q8_0": 127, "q4_0": 8, "q4_1": 15}[kind]
    extent = np.ptp(x, axis=1) if kind == "q4_1" else np.abs(x).max(axis=1)
    limit = (0.51 if kind != "q4_0" else 1.01) * extent / steps + 2e-3 * np.abs(x).max(axis=1)
    assert np.all(np.abs(right - x).max(axis=1) <= limit)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_become_floats_and_the_same_blocks_again(kind: str) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(2000, 64)) * 10.0 ** random.uniform(-2, 1, (2000, 1))
    data = encoded(kind, x.astype(np.float32))
    assert data is not None
    floats = decoded(kind, data, x.shape)
    for again in (encoded(kind, floats), held(kind, floats)):
        assert again is not None
        np.testing.assert_array_equal(again, data)
    np.testing.assert_array_equal(nearest_in(kind, floats, 0), floats)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_that_others_rounded_lose_nothing_either(kind: str) -> None:
    """Their extremes need not lie at the ends of the range. Any bytes, but finite scales."""
    random = np.random.default_rng(2)
    count, block = 3000, ROUNDED[kind]
    data = random.integers(0, 256, (count, block.bytes), np.uint8)
    scale = random.normal(size=(2, count)) * 10.0 ** random.uniform(-3, 1, (2, count))
    scale[0] = np.abs(scale[0]) if kind != "q4_0" else scale[0]
    data[:, :2] = scale[0].astype("<f2").view(np.uint8).reshape(-1, 2)
    if kind == "q4_1":
        data[:, 2:4] = scale[1].astype("<f2").view(np.uint8).reshape(-1, 2)
    floats = decoded(kind, data.reshape(-1), (count, 32))
    found = held(kind, floats)
    assert found is not None
    again = decoded(kind, found, floats.shape)
    np.testing.assert_array_equal(again, floats)


def test_a_weight_that_is_in_no_blocks_is_not_held() -> None:
    x = some_blocks()
    assert all(held(kind, x) is None for kind in BLOCKS)
    for kind in BLOCKS:
        data = encoded(kind, x)
        assert data is not None
        near = decoded(kind, data, x.shape)
        near[150, 7] = np.nextafter(near[150, 7], np.float32(np.inf))
        assert held(kind, near) is None


def test_scales_that_16_bits_do_not_hold() -> None:
    """Too large for d: 8 bits by rows. Too small: if that matters; it does not beside others."""
    x = some_blocks(40)
    huge, tiny = x * np.float32(1e7), x * np.float32(1e-12)
    for kind in BLOCKS:
        assert encoded(kind, huge) is None and encoded(kind, tiny) is None
        for weight in (huge, tiny):
            now = nearest_in(kind, weight, 0)
            np.testing.assert_array_equal(now, by_rows(weight, 0))
            most = np.abs(weight).max(axis=1)
            assert np.all(np.abs(now - weight).max(axis=1) <= most * 0.501 / 127)
        mixed = np.concatenate([x, tiny])
        data = encoded(kind, mixed)
        assert data is not None
        found = decoded(kind, data, mixed.shape)
        assert np.abs(found[:40]).max() > 0 and np.abs(found[40:] - tiny).max() < 1e-7


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_of_8_bits_become_floats_and_the_same_again(axis: int) -> None:
    random = np.random.default_rng(3)
    weight = (random.normal(size=(9, 7, 5)) * 10.0 ** random.uniform(-9, 9)).astype(np.float32)
    weight[1, 1, 1] = weight[:, 2, :] = 0
    now = by_rows(weight, axis)
    axes = tuple(i for i in range(3) if i != axis)
    most = np.abs(weight).max(axis=axes, keepdims=True)
    assert np.all(np.abs(now - weight) <= most * 0.501 / 127)
    np.testing.assert_array_equal(by_rows(now, axis), now)
    q = now / np.where(most > 0, np.abs(now).max(axis=axes, keepdims=True), 1) * 127
    np.testing.assert_allclose(q, np.rint(q), atol=1e-4)


def test_long_blocks_by_hand() -> None:
    """Parts with other scales, minima and q: d = 0.5, e = 0.25."""
    block = np.zeros(144, np.uint8)
    block[:4] = np.array([0.5, 0.25], "<f2").view(np.uint8)
    scales, minima = [1, 2, 3, 63, 5, 16, 48, 63], [0, 7, 62, 63, 15, 31, 17, 63]
    for part in range(4):
        block[4 + part] = scales[part] | scales[part + 4] >> 4 << 6
        block[8 + part] = minima[part] | minima[part + 4] >> 4 << 6
        block[12 + part] = scales[part + 4] & 15 | (minima[part + 4] & 15) << 4
    q = np.random.default_rng(0).integers(0, 16, (8, 32))
    block[16:] = (q[0::2] | q[1::2] << 4).reshape(-1)
    right = 0.5 * np.array(scales)[:, None] * q - 0.25 * np.array(minima)[:, None]
    np.testing.assert_array_equal(decoded("q4_k", block, (1, 256)).reshape(8, 32), right)


def test_long_blocks_are_read_as_from_a_file() -> None:
    data = np.random.default_rng(0).integers(0, 256, (100, 144)).astype(np.uint8)
    data[:, [1, 3]] &= 0xBF  # finite scales
    found = decoded("q4_k", data, (50, 512))
    np.testing.assert_array_equal(found, widened(FORMATS[12], data, (50, 512)))
