"""Files as they should not be: an error that says what is wrong, little memory, nothing loaded."""

import copy
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from whet.errors import CheckpointError
from whet.labs.compress.fields import Damaged
from whet.labs.compress.storage import HEADER, decode, encode, load, read, save

LIMIT = 1 << 18
HUGE = (b"\xff" * 8 + b"\x7f", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x40", b"\xff\x7f", b"\xff" * 12)


def sealed(payload: bytes) -> bytes:
    """With a header that is right for this payload."""
    return HEADER.pack(b"WHTC", 1, zlib.crc32(payload), len(payload)) + payload


def arrays() -> dict[str, np.ndarray]:
    """A tensor for every method, type of stream and type of value."""
    rng = np.random.default_rng(0)
    book = np.array([0.1, -0.2, 0.3, 0.7], np.float32)
    dense = book[rng.choice(4, 300, p=[0.7, 0.1, 0.1, 0.1])].reshape(20, 15)
    alive = rng.random((20, 15)) < 0.1
    return {
        "raw": rng.normal(size=9).astype(np.float32),
        "book": dense,
        "flat": book[rng.integers(0, 4, 300)],
        "sparse": rng.normal(size=(20, 15)).astype(np.float32) * alive,
        "pruned": dense * alive,
        "pruned.again": dense * alive,
        "zero": np.zeros(500, np.float64),
        "bits": np.array([True, False]),
        "count": np.array(7),
    }


GOOD = encode(arrays())[0]


def hostile(rng: random.Random) -> bytes:
    """A good file that was changed, cut, extended, spliced or given other numbers."""
    payload = bytearray(GOOD[HEADER.size :])
    kind = rng.randrange(7)
    if kind == 0:
        return rng.randbytes(rng.randrange(80))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(payload) + 1)
        if kind == 1:
            payload[at : at + 1] = rng.randbytes(1)
        elif kind == 2:
            payload[at : at + 1] = bytes([payload[at - 1] ^ 1 << rng.randrange(8)])
        elif kind == 3:
            payload[at : at + rng.randrange(4)] = rng.choice(HUGE)
        elif kind == 4:
            del payload[at : at + rng.randrange(1, 20)]
        elif kind == 5:
            payload[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            start = rng.randrange(len(payload) + 1)
            payload[at:] = payload[start:]
    if rng.random() < 0.1:
        whole = bytearray(GOOD[: HEADER.size] + payload)
        whole[rng.randrange(24)] = rng.randrange(256)
        return bytes(whole)
    return sealed(bytes(payload))


def fuzz(seed: int, count: int) -> tuple[int, set[str]]:
    """How many files were refused, and the beginnings of the reasons."""
    rng = random.Random(seed)
    refused, reasons = 0, set()
    for _ in range(count):
        blob = hostile(rng)
        try:
            found = decode(blob, LIMIT)
        except Damaged as error:
            refused += 1
            reasons.add("".join(c for c in str(error) if not c.isdigit())[-30:])
        else:
            assert sum(a.nbytes for a in found.values()) <= LIMIT
    return refused, reasons


def test_hostile_files_are_refused_with_a_reason() -> None:
    refused, reasons = fuzz(0, 2500)
    assert refused > 1800  # others only changed a value or a name
    assert len(reasons) > 25


def test_hostile_files_take_no_memory() -> None:
    tracemalloc.start()
    fuzz(1, 300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * LIMIT + (1 << 20)


@pytest.mark.slow
def test_many_hostile_files_are_refused() -> None:
    refused, _ = fuzz(2, 20_000)
    assert refused > 15_000


def test_a_damaged_file_leaves_the_model_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    path = tmp_path / "m"
    save(model, path)
    good, before = path.read_bytes(), copy.deepcopy(model.state_dict())
    damaged = [good[:n] for n in range(len(good))]
    damaged += [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    damaged += [good + b"\0"]
    for blob in damaged:
        path.write_bytes(blob)
        with pytest.raises(CheckpointError, match="is not a compressed model"):
            load(path, model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_last_tensor_is_decoded_before_the_first_is_loaded(tmp_path: Path) -> None:
    """Sealed damage in the last tensor: an index outside its codebook."""
    payload = bytearray(encode({n: t.numpy() for n, t in nn.Linear(3, 3).state_dict().items()})[0])
    del payload[: HEADER.size]
    payload[0] += 1
    payload += b"\0\1z" + bytes([3, 1, 3, 1, 3, 3, 1, 2, 3, 2, 0xFC])
    path = tmp_path / "m"
    path.write_bytes(sealed(bytes(payload)))
    model = nn.Linear(3, 3)
    model.register_buffer("z", torch.zeros(3, dtype=torch.int8))
    before = copy.deepcopy(model)
    with pytest.raises(CheckpointError, match="z: an index is 3, the codebook has 3 values"):
        load(path, model)
    assert torch.equal(model.weight, before.weight) and not model.z.any()
    payload[-1] = 0b00_01_10_00
    path.write_bytes(sealed(bytes(payload)))
    assert load(path, model).z.tolist() == [1, 2, 3]


def field(name: bytes, rest: bytes, count: int = 1) -> bytes:
    return sealed(bytes([count, 0, len(name)]) + name + rest)


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "it has 0 bytes, the header alone has 20"),
        (b"PK" + GOOD[2:], "begins with b'PKTC'"),
        (GOOD[:4] + b"\2" + GOOD[5:], "its version is 2, this version of whet reads 1"),
        (GOOD[:-1], "shorter than it says"),
        (GOOD + b"\0", "longer than it says"),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "checksum is wrong"),
        (sealed(b"\1"), "1 bytes are announced at 1, 0 are left"),
        (sealed(b"\0\0"), "1 bytes follow the last tensor"),
        (sealed(b"\1\5\0"), "name of tensor 0 is not a name"),
        (sealed(b"\xff" * 9 + b"\1"), "more than 63 bits"),
        (field(b"\xff", bytes([0, 0, 0, 0, 0, 0, 0, 0])), "utf-8"),
        (field(b"a", bytes([9, 0, 0])), "9 is no type of a tensor"),
        (field(b"a", bytes([0, 17, 0])), "17 axes, at most 16"),
        (field(b"a", bytes([0, 0, 5])), "5 is no method"),
        (field(b"a", bytes([0, 0, 4, 0])), "a is a copy of tensor 0, which is none before it"),
        (field(b"a", bytes([3, 0, 0, 0, 1, 2, 3, 4])), "values of type 0 are not .* int8"),
        (field(b"a", bytes([3, 0, 0, 9])), "values of type 9"),
        (field(b"a", bytes([8, 0, 0, 8, 2])), "neither 0 nor 1"),
        (field(b"a", bytes([3, 0, 0, 3, 5, 0])), "1 bytes follow"),
        (field(b"a", bytes([3, 0, 1, 0x81, 2])), "a codebook has 257 values"),
        (field(b"a", bytes([3, 1, 3, 1, 3, 3, 1, 2, 3, 2, 0xFF])), "bits after the last"),
        (field(b"a", bytes([3, 1, 3, 1, 3, 3, 1, 2, 3, 2, 0xFC])), "index is 3, .* has 3 values"),
        (field(b"a", bytes([3, 1, 3, 1, 3, 3, 1, 2, 3, 9, 0])), "9 is no form of a stream"),
        (field(b"a", bytes([3, 1, 3, 1, 1, 3, 1, 16, 0x81, 2])), "alphabet has 257 symbols"),
        (field(b"a", bytes([3, 1, 3, 2, 4, 4, 2])), "4 values at 4 steps do not fit 3"),
        (field(b"a", bytes([3, 1, 3, 2, 1, 1, 9])), "has 9 bits, 1 to 8"),
        (field(b"a", bytes([3, 1, 3, 2, 1, 1, 2, 0])), "0 is no form of a stream"),
        (field(b"a", bytes([3, 1, 3, 2, 1, 2, 2, 2, 0b11000000, 3, 1])), "positions are not"),
        (field(b"a", bytes([3, 1, 3, 2, 1, 1, 1, 2, 0b10000000, 3, 1])), "more than 1 bits"),
        (field(b"a", bytes([3, 0, 0, 3, 1, 1, 0, 3, 0, 0, 3, 1]), 2), "two tensors a"),
    ],
)  # fmt: skip
def test_the_reason_is_said(blob: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(blob)
    with pytest.raises(CheckpointError, match=why):
        read(tmp_path / "m")


def test_a_copy_has_the_type_and_shape_of_its_twin() -> None:
    first = bytes([2, 0, 1]) + b"a" + bytes([3, 1, 1, 0, 3, 7])
    for shape in ([4, 1, 1], [3, 1, 2], [3, 0]):
        with pytest.raises(Damaged, match="b is a copy of a, which has another type or shape"):
            decode(sealed(first + bytes([0, 1]) + b"b" + bytes([*shape, 4, 0])))
    good = decode(sealed(first + bytes([0, 1]) + b"b" + bytes([3, 1, 1, 4, 0])))
    assert good["b"].tolist() == [7]


@pytest.mark.parametrize(
    "make",
    [
        # 2**60 zeros, 2**62 times one value, and 1,000 copies of what just fits
        lambda: field(b"a", bytes([3, 1, *[0x80] * 8, 0x10, 2, 0, 0, 1, 1, 3])),
        lambda: field(b"a", bytes([3, 1, *[0x80] * 8, 0x40, 1, 1, 3, 7, 0])),
        lambda: sealed(
            bytes([0xE8, 7]) + b"\0\1a" + bytes([3, 1, 0x80, 0x80, 8, 1, 1, 3, 7, 0])
            + b"".join(b"\0\3%03d" % i + bytes([3, 1, 0x80, 0x80, 8, 4, 0]) for i in range(999))
        ),
    ],
)  # fmt: skip
def test_small_files_of_large_tensors_take_no_memory(
    make: Callable[[], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "m"
    path.write_bytes(make())
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"bytes, the limit is 65,536"):
        read(path, limit=1 << 16)
    with pytest.raises(CheckpointError, match="the file has no weight"):
        load(path, nn.Linear(2, 2))
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "m"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(CheckpointError, match="begins with b'PK"):
        load(path, nn.Linear(2, 2))
    assert struct.calcsize(HEADER.format) == 20
