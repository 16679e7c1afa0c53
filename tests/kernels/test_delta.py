"""Updates to send: every byte against NumPy, on every target; noise, norm and size as promised."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import whet
from delta_reference import chacha20, changes, gaussian_table, noise, update, varints
from whet.errors import DataError, NotFinite, SchemeError
from whet.runtime.update import decode
from whet.targets.cortex_m import Board
from whet.training.send import most_gap_bytes

X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([1, 3])
KEY = bytes(range(32))
SENDS = {
    "dense": whet.Send(),
    "sparse": whet.Send(top_k=0.01),
    "clipped": whet.Send(clip=0.01, top_k=0.3),
    "loosely clipped": whet.Send(clip=1e3),
    "noisy": whet.Send(clip=0.02, noise=1.0),
    "noisy and sparse": whet.Send(clip=0.02, noise=0.01, top_k=0.1),
    "bytes": whet.Send(top_k=0.2, values="i8"),
    "halves": whet.Send(values="f16"),
}
HALF = whet.Scheme([whet.Rule("0.weight", 0.5), whet.Rule("3.*")])
PROGRAMS: dict[str, dict[str, Any]] = {
    "float": {"target": "portable"},
    "channels": {"target": "portable", "update": HALF},
    "nearest": {"dtype": "int8", "calibrate": [X]},
    "carry8": {"dtype": whet.Int8(rounding="carry8"), "calibrate": [X], "update": HALF},
    "carry16": {"dtype": whet.Int8(rounding="carry16", head="int8"), "calibrate": [X]},
    "master": {"dtype": whet.Int8(rounding="master"), "calibrate": [X]},
}


def program(send: whet.Send | None, **options: Any) -> whet.Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    return whet.compile(model.eval(), (X,), send=send, **options)


def trained(send: whet.Send, **options: Any) -> whet.Trainer:
    """After a step of one round, and two of the next."""
    trainer = program(send, **options).load()
    trainer.step(X, Y, lr=0.1)
    trainer.begin()
    for _ in range(2):
        trainer.step(X, Y, lr=0.1)
    return trainer


PAIRS = [
    *((kind, send) for kind in ("float", "carry8") for send in SENDS),
    *((kind, send) for kind in PROGRAMS for send in ("clipped", "noisy and sparse")),
]


@pytest.mark.parametrize(("kind", "send"), dict.fromkeys(PAIRS))
def test_every_byte_is_that_of_numpy(kind: str, send: str) -> None:
    trainer = trained(SENDS[send], **PROGRAMS[kind])
    x = changes(trainer)
    assert np.count_nonzero(x) > 10
    found = trainer.delta(7, KEY)
    assert found == update(x, SENDS[send], trainer.program.fingerprint, 7, KEY)
    assert trainer.program.delta is not None
    assert len(found) <= trainer.program.delta.bytes


@pytest.mark.parametrize("send", ["noisy and sparse", "bytes"])
def test_a_board_sends_what_this_machine_sends(send: str) -> None:
    options = {"dtype": whet.Int8(rounding="carry8"), "calibrate": [X]}
    here = trained(SENDS[send], **options)
    there = trained(SENDS[send], **options, target="cortex-m7")
    assert there.delta(7, KEY) == here.delta(7, KEY)
    there.close()


def test_nothing_is_sent_right_after_the_start_of_a_round() -> None:
    trainer = trained(SENDS["dense"], **PROGRAMS["float"])
    trainer.begin()
    assert not np.frombuffer(trainer.delta(0)[36:], "<f4").any()
    fresh = program(SENDS["dense"], **PROGRAMS["float"]).load()  # without begin
    assert not np.frombuffer(fresh.delta(0)[36:], "<f4").any()


@pytest.mark.parametrize("send", SENDS)
def test_an_update_of_nothing_or_next_to_nothing_can_be_read(send: str) -> None:
    trainer = trained(SENDS[send], **PROGRAMS["float"])
    for tiny in (0.0, 1e-45, 1e-43, 1e-38, 1e-36):
        trainer.begin()
        for base in ("3.bias.base", "3.weight.base"):
            trainer._view(base)[:] = trainer._view(base.removesuffix(".base"))[:] = 0.0
        trainer._view("3.bias")[:2] = tiny, -tiny / 2
        sent = trainer.delta(3, KEY)
        found = decode(sent, trainer.program.fingerprint).dense()
        assert sent == update(changes(trainer), SENDS[send], trainer.program.fingerprint, 3, KEY)
        if not SENDS[send].noise and SENDS[send].coding != "f16":
            np.testing.assert_allclose(found[-5:], [tiny, -tiny / 2, 0, 0, 0], atol=1e-38)


def test_there_is_no_noise_without_a_key() -> None:
    import ctypes

    for send, gives in (("noisy", False), ("dense", True)):
        trainer = trained(SENDS[send], **PROGRAMS["float"])
        assert trainer.program.delta is not None
        room = trainer.program.delta.bytes
        buffer = ctypes.create_string_buffer(room)
        function = trainer._function("delta", ctypes.c_size_t)
        rest = (ctypes.c_size_t(room), ctypes.c_uint32(0), None)
        assert bool(function(trainer._pointer, buffer, *rest)) == gives


def test_the_norm_is_at_most_that_of_the_clip() -> None:
    for clip in (1e-3, 0.02, 0.2):
        trainer = trained(whet.Send(clip=clip), **PROGRAMS["float"])
        sent = np.frombuffer(trainer.delta(0)[36:], "<f4").astype(np.float64)
        norm = np.linalg.norm(changes(trainer).astype(np.float64))
        assert norm > clip
        assert 0.9999 * clip < np.linalg.norm(sent) <= clip


def test_the_random_words_are_those_of_chacha20() -> None:
    """The test vector of RFC 8439, section 2.3.2."""
    words = chacha20(KEY, 1, (0x09000000, 0x4A000000, 0))
    assert words[:4] == [0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3]
    assert words[-1] == 0x4E3C50A2


def test_the_table_in_c_is_the_distribution() -> None:
    text = (resources.files("whet") / "kernels" / "whet_gaussian.h").read_text()
    assert [int(x, 16) for x in re.findall(r"(0x[0-9a-f]{16})u", text)] == gaussian_table()


def test_the_noise_is_a_discrete_gaussian() -> None:
    """Mean, variance, kurtosis and tails of 40,000 samples; other keys and rounds give others."""
    z = noise(40_000, KEY, 1)
    assert abs(z.mean()) < 4 * 16 / 200
    assert abs(z.var() / 256 - 1) < 4 * np.sqrt(2 / 40_000)
    assert abs((z.astype(float) ** 4).mean() / 256**2 - 3) < 4 * np.sqrt(96 / 40_000)
    assert abs((np.abs(z) > 32).mean() - 0.0422) < 0.004  # P(|z| > 32)
    assert abs(np.corrcoef(z[1:], z[:-1])[0, 1]) < 0.02
    assert (noise(8, KEY, 2) != z[:8]).any() and (noise(8, KEY[::-1], 1) != z[:8]).any()


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=40))
def test_no_gaps_take_more_bytes_than_reserved(gaps: list[int]) -> None:
    assert len(varints(np.array(gaps))) <= most_gap_bytes(sum(gaps), len(gaps))


@pytest.mark.parametrize("count, total", [(1, 127), (3, 128), (3, 3 * 128), (2, 16384 + 128)])
def test_some_gaps_take_that_many(count: int, total: int) -> None:
    worst = max(
        len(varints(np.array([a, *[b] * (count - 1)])))
        for a in {0, 127, 128, 16383, 16384, total}
        for b in {0, 128, 16384}
        if a + b * (count - 1) <= total
    )
    assert most_gap_bytes(total, count) == worst


def test_a_buffer_that_is_too_small_is_left_alone() -> None:
    import ctypes

    trainer = trained(SENDS["sparse"], **PROGRAMS["float"])
    assert trainer.program.delta is not None
    size = trainer.program.delta.bytes
    buffer = ctypes.create_string_buffer(b"x" * size, size)
    function = trainer._function("delta", ctypes.c_size_t)
    rest = (ctypes.c_uint32(0), KEY)
    assert function(trainer._pointer, buffer, ctypes.c_size_t(size - 1), *rest) == size
    assert buffer.raw == b"x" * size
    assert function(trainer._pointer, None, ctypes.c_size_t(0), *rest) == size


def test_parameters_that_are_not_finite_are_not_sent() -> None:
    trainer = trained(SENDS["noisy"], **PROGRAMS["float"])
    trainer._view("3.bias")[0] = np.nan
    with pytest.raises(NotFinite, match="there is no update"):
        trainer.delta(0)


def test_what_cannot_be_sent_is_said() -> None:
    plain = program(None, target="portable").load()
    for call in (plain.begin, plain.delta):
        with pytest.raises(DataError, match="sends nothing"):
            call()
    trainer = trained(SENDS["dense"], **PROGRAMS["float"])
    with pytest.raises(DataError, match="the key has 3 bytes"):
        trainer.delta(0, b"abc")
    with pytest.raises(DataError, match="round=-1"):
        trainer.delta(-1)


BAD: dict[str, dict[str, Any]] = {
    "clip=0": {"clip": 0.0},
    "clip=inf": {"clip": float("inf")},
    "clip='1'": {"clip": "1"},
    "clip=1e-50 is outside 1e-12 to 1e+12": {"clip": 1e-50, "noise": 1.0},
    "clip=1e+39": {"clip": 1e39},
    "noise=None": {"clip": 1.0, "noise": None},
    "noise without clip": {"noise": 1.0},
    "noise=1e-06": {"clip": 1.0, "noise": 1e-6},
    "noise=-1": {"clip": 1.0, "noise": -1.0},
    "top_k=0": {"top_k": 0.0},
    "top_k=2": {"top_k": 2},
    "values='f8'": {"values": "f8"},
    "16-bit integers already": {"clip": 1.0, "noise": 1.0, "values": "i8"},
}


@pytest.mark.parametrize("words", BAD)
def test_options_that_mean_nothing(words: str) -> None:
    with pytest.raises(SchemeError, match=re.escape(words)):
        whet.Send(**BAD[words])


def test_the_base_is_in_the_memory_and_in_checkpoints() -> None:
    before, after = program(None, target="portable"), program(whet.Send(), target="portable")
    extra = after.memory["state"] - before.memory["state"]
    assert extra == before.memory["trained"]
    assert after.memory["flash"] == before.memory["flash"]
    assert after.delta is not None and after.delta.base_bytes == extra
    lines = [" ".join(line.split()) for line in after.report().splitlines()]
    assert f"copy from the start of a round {extra:,} B" in lines
    assert f"update to send: {after.delta.n} changes; {after.delta.bytes:,} B at most" in lines
    assert "update to send" not in before.report()
    one = trained(whet.Send(), target="portable")
    other = one.program.load()
    other.load(one.save())
    assert other.delta(1) == one.delta(1)


def test_the_instructions_of_an_update_are_counted_on_a_board() -> None:
    """Twice as many updates take twice as many; noise takes more than none."""
    options = {"dtype": whet.Int8(rounding="carry8"), "calibrate": [X], "target": "cortex-m7"}
    found: dict[tuple[str, int], int] = {}
    for send, times in (("dense", 1), ("dense", 2), ("noisy", 1)):
        with Board(program(SENDS[send], **options), counted="delta") as board:
            for _ in range(times):
                board.delta(7, KEY)
        found[send, times] = board.instructions()
        assert board.watched is not None and found[send, times] < board.watched.instructions
    n = program(SENDS["dense"], **options).storage.params.values()
    assert found["dense", 1] > sum(kind.elements for kind in n)
    assert found["dense", 2] == 2 * found["dense", 1]
    assert found["noisy", 1] > 3 * found["dense", 1]
    with pytest.raises(DataError, match="nothing was watched"):
        board.profile()
