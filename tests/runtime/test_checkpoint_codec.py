"""One format: what C writes Python reads, what Python writes C reads, and both refuse the rest."""

from __future__ import annotations

import ctypes
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import whet
from whet.emit.c import STATUSES
from whet.emit.program import Program
from whet.errors import CheckpointError
from whet.ir import i8, i32
from whet.ir.graph import f32
from whet.runtime.checkpoint import HEADER, Checkpoint, Layout
from whet.targets.cortex_m import Board

STATUS = [name for name, _ in STATUSES]
X, Y = torch.linspace(-1, 1, 72).reshape(1, 3, 6, 4), torch.tensor([2])


def program(target: str) -> Program:
    """Bytes, words and halves side by side, so that the structs of C have gaps."""
    torch.manual_seed(0)
    int8 = whet.Int8(rounding="carry16")
    layers = (nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 3, 1), nn.Flatten(), nn.Linear(24, 3))
    model = nn.Sequential(*layers).eval()
    return whet.compile(model, (X,), dtype=int8, calibrate=[X], target=target)


COMMANDS = """\
        case SAVE: {
            static unsigned char blob[4096];
            const uint32_t size = (uint32_t)net_save(&ram.net, blob, sizeof blob);
            answer(NET_OK, blob, size);
            break;
        }
        case LOAD: {
            static unsigned char blob[4096];
            uint32_t size;
            board_read(&size, sizeof size);
            board_read(blob, size);
            answer(net_load(&ram.net, blob, size), NULL, 0);
            break;
        }
        case QUIT:
"""
LETTERS = "    SAVE = 'C', LOAD = 'L', TRAIN = 'T',"


class OnBoard:
    """The functions of C on an emulated board, whose firmware has two commands more."""

    def __init__(self) -> None:
        made = replace(program("cortex-m7"), measured={})
        files = dict(made.files)
        for old, new in (("        case QUIT:\n", COMMANDS), ("    TRAIN = 'T',", LETTERS)):
            assert files["main.c"].count(old.encode()) == 1
            files["main.c"] = files["main.c"].replace(old.encode(), new.encode())
        made.__dict__["files"] = files
        self.trainer = self.board = Board(made, watched=False)

    def save(self, size: int) -> bytes:
        return self.board._ask(b"C", b"", size)

    def load(self, blob: bytes) -> str:
        self.board._ask(b"L", struct.pack("<I", len(blob)) + blob, 0)
        return STATUS[self.board._status]


class OnHost:
    def __init__(self, target: str) -> None:
        self.trainer = program(target).load()

    def save(self, size: int) -> bytes:
        function = self.trainer._function("save", ctypes.c_size_t)
        buffer = ctypes.create_string_buffer(size)
        assert function(self.trainer._pointer, None, ctypes.c_size_t(0)) == size
        assert function(self.trainer._pointer, buffer, ctypes.c_size_t(size)) == size
        return buffer.raw

    def load(self, blob: bytes) -> str:
        size = ctypes.c_size_t(len(blob))
        return STATUS[self.trainer._function("load")(self.trainer._pointer, blob, size)]


@pytest.fixture(params=["host", "portable", "cortex-m7"], scope="module")
def side(request: pytest.FixtureRequest) -> Iterator[OnHost | OnBoard]:
    if request.param != "cortex-m7":
        yield OnHost(request.param)
        return
    assert shutil.which("qemu-system-arm"), "`make setup-mcu` installs it"
    made = OnBoard()
    yield made
    made.board.close()


def test_python_reads_what_c_writes(side: OnHost | OnBoard) -> None:
    trainer = side.trainer
    trainer.step(X, Y, lr=5.0)
    layout, written = Layout.of(trainer.program), trainer.save()
    assert side.save(len(written)) == written
    read = layout.decode(written)
    store = trainer.program.storage
    assert list(read.arrays) == [*store.params, *store.state]
    assert {t.dtype.size for t in (store.params | store.state).values()} == {1, 2, 4}
    assert sum(a.nbytes for a in read.arrays.values()) < layout.size, "there are gaps"
    for name, array in read.arrays.items():
        assert np.array_equal(array.ravel(), trainer.stored(name)), name


def test_c_reads_what_python_writes(side: OnHost | OnBoard) -> None:
    trainer = side.trainer
    layout = Layout.of(trainer.program)
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(-100, 100, kind.shape).astype(kind.dtype.numpy)
        for name, kind, _ in layout.members
    }
    blob = layout.encode(Checkpoint(layout.model, arrays))
    assert side.load(blob) == "OK"
    if isinstance(trainer, Board):
        trainer._fresh = False
    for name, array in arrays.items():
        assert np.array_equal(trainer.stored(name), array.ravel()), name
    assert side.save(len(blob)) == blob


def changed(blob: bytes, at: int, fmt: str, number: int) -> bytes:
    return blob[:at] + struct.pack(fmt, number) + blob[at + struct.calcsize(fmt) :]


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "empty": (lambda b: b"", "TRUNCATED", "shorter than it says"),
    "half a header": (lambda b: b[:23], "TRUNCATED", "shorter than it says"),
    "header alone": (lambda b: b[:24], "TRUNCATED", "shorter than it says"),
    "last byte missing": (lambda b: b[:-1], "TRUNCATED", "shorter than it says"),
    "a byte more": (lambda b: b + b"\0", "CORRUPT", "longer than it says"),
    "first bit": (lambda b: bytes([b[0] ^ 1]) + b[1:], "CORRUPT", "not a checkpoint"),
    "bit of the content": (
        lambda b: b[:40] + bytes([b[40] ^ 16]) + b[41:], "CORRUPT", "checksum is wrong"),
    "bit of the checksum": (
        lambda b: b[:12] + bytes([b[12] ^ 1]) + b[13:], "CORRUPT", "checksum is wrong"),
    "version": (lambda b: changed(b, 4, "<I", 2), "FOREIGN", "version is 2, this program reads 1"),
    "model": (lambda b: changed(b, 8, "<I", 1), "FOREIGN", "another model or scheme"),
    "length": (lambda b: changed(b, 16, "<Q", 7), "FOREIGN", "it holds 7 bytes"),
    "huge length": (lambda b: changed(b, 16, "<Q", 2**63), "FOREIGN", "another model or scheme"),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_both_refuse_the_same_and_change_nothing(side: OnHost | OnBoard, case: str) -> None:
    spoil, status, words = SPOILT[case]
    trainer = side.trainer
    before = trainer.save()
    bad = spoil(before)
    assert side.load(bad) == status
    with pytest.raises(CheckpointError) as caught:
        trainer.load(bad)
    assert words in str(caught.value) and f"{len(bad)} bytes" in str(caught.value)
    assert trainer.save() == before


def test_the_bytes_are_as_documented() -> None:
    """Written out by hand: checkpoints that users have must stay readable."""
    layout = Layout(0xABCD1234, ({"a": i8(3), "b": i32(2)}, {"c": f32()}))
    arrays = {
        "a": np.array([1, -1, 2], np.int8), "b": np.array([5, -6], np.int32),
        "c": np.array(1.5, np.float32),
    }  # fmt: skip
    payload = b"\x01\xff\x02\x00" + struct.pack("<iif", 5, -6, 1.5)
    header = b"WHET" + struct.pack("<IIIQ", 1, 0xABCD1234, zlib.crc32(payload), 16)
    assert HEADER.size == 24
    assert layout.encode(Checkpoint(0xABCD1234, arrays)) == header + payload
    read = layout.decode(header + payload)
    assert read.model == 0xABCD1234
    for name, array in arrays.items():
        assert read.arrays[name].dtype == array.dtype and np.array_equal(read.arrays[name], array)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda a: {"a": a["a"]}, "b is missing"),
        (lambda a: a | {"b": a["b"].astype(np.int64)}, r"b is int64\[2\]"),
        (lambda a: a | {"a": a["a"][:2]}, r"a is int8\[2\]"),
    ],
)
def test_arrays_that_do_not_fit_are_not_written(spoil: Any, words: str) -> None:
    layout = Layout(7, ({"a": i8(3), "b": i32(2)}, {}))
    arrays = {"a": np.zeros(3, np.int8), "b": np.zeros(2, np.int32)}
    assert len(layout.encode(Checkpoint(7, arrays))) == 24 + 12
    with pytest.raises(CheckpointError, match=words):
        layout.encode(Checkpoint(7, spoil(arrays)))
    with pytest.raises(CheckpointError, match="another model"):
        layout.encode(Checkpoint(8, arrays))
