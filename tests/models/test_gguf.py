"""GGUF files: the numbers in them, and what is wrong with those that are refused."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_gguf import (
    SIZES,
    blocks,
    llama_tensors,
    mutated,
    string,
    tiny_llama,
    tiny_qwen2,
    value,
    written,
)
from whet.errors import FrontendError, WhetError
from whet.frontend.memory import at_most
from whet.models import Gguf
from whet.models.ggml import FORMATS
from whet.models.load_gguf import model_of

F = np.float32


def half(data: bytes, at: int) -> Any:
    return F(np.frombuffer(data, "<f2", 1, at)[0])


def scale_and_minimum(packed: bytes, j: int) -> tuple[int, int]:
    """The j-th of the six-bit pairs in twelve bytes."""
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    return (
        (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4),
        (packed[j + 4] >> 4) | (packed[j] >> 6 << 4),
    )


def one_by_one(kind: str, data: bytes) -> list[Any]:
    """The weights of one block, by the definition of its format, one after another."""
    d = half(data, 208 if kind == "Q6_K" else 0)
    if kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        minimum = half(data, 2) if kind[-1] == "1" else None
        at = 4 if minimum is not None else 2
        five = kind[1] == "5"
        bits = int.from_bytes(data[at : at + 4], "little") if five else 0
        at += 4 if five else 0
        found = []
        for i in range(32):
            byte = data[at + i % 16]
            q = (byte & 15 if i < 16 else byte >> 4) | (bits >> i & 1) << 4
            if minimum is None:
                found.append(d * F(q - (16 if five else 8)))
            else:
                found.append(d * F(q) + minimum)
        return found
    if kind == "Q8_0":
        return [d * F(q) for q in struct.unpack("32b", data[2:])]
    if kind in ("Q4_K", "Q5_K"):
        dmin, found = half(data, 2), []
        low = data[16:] if kind == "Q4_K" else data[48:]
        for i in range(256):
            part, k = divmod(i, 32)
            scale, minimum = scale_and_minimum(data[4:16], part)
            byte = low[part // 2 * 32 + k]
            q = byte & 15 if part % 2 == 0 else byte >> 4
            if kind == "Q5_K":
                q |= (data[16 + k] >> part & 1) << 4
            found.append(d * F(scale) * F(q) - dmin * F(minimum))
        return found
    assert kind == "Q6_K"
    found = []
    scales = struct.unpack("16b", data[192:208])
    for i in range(256):
        large, rest = divmod(i, 128)
        quarter, k = divmod(rest, 32)
        byte = data[large * 64 + quarter % 2 * 32 + k]
        q = byte & 15 if quarter < 2 else byte >> 4
        q |= (data[128 + large * 32 + k] >> 2 * quarter & 3) << 4
        found.append(d * F(scales[i // 16]) * F(q - 32))
    return found


@pytest.mark.parametrize("kind", [f.name for f in FORMATS.values() if f.block > 1])
def test_blocks_are_widened_bit_for_bit(kind: str) -> None:
    stored = blocks(kind, (3, 256 * 5), np.random.default_rng(0))
    tensor = Gguf.parse(written({}, {"w": stored})).tensors["w"]
    size = FORMATS[next(k for k, f in FORMATS.items() if f.name == kind)].bytes
    parts = [stored[2][i : i + size] for i in range(0, len(stored[2]), size)]
    wanted = np.array([x for part in parts for x in one_by_one(kind, part)], np.float32)
    assert tensor.array().shape == (3, 1280) and tensor.array().dtype == np.float32
    assert tensor.array().tobytes() == wanted.tobytes()
    assert tensor.rows().shape == (3, len(stored[2]) // 3)


def test_plain_floats_are_themselves() -> None:
    numbers = np.array([[1.5, -2.25, 0.0, 3e4]], np.float32)
    tensors = {
        "a": ("F32", (1, 4), numbers.tobytes()),
        "b": ("F16", (1, 4), numbers.astype("<f2").tobytes()),
        "c": ("BF16", (1, 4), (numbers.view("<u4") >> 16).astype("<u2").tobytes()),
    }
    file = Gguf.parse(written({}, tensors))
    np.testing.assert_array_equal(file.tensors["a"].array(), numbers)
    np.testing.assert_array_equal(file.tensors["b"].array(), numbers.astype(np.float16))
    cut = (numbers.view(np.uint32) >> 16 << 16).view(np.float32)
    np.testing.assert_array_equal(file.tensors["c"].array(), cut)


def test_a_large_tensor_is_widened_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = Gguf.parse(
        written({}, {"w": blocks("Q4_K", (7, 512), np.random.default_rng(0))})
    ).tensors["w"]
    whole = tensor.array()
    monkeypatch.setattr("whet.models.ggml.CHUNK", 512 * 3)
    np.testing.assert_array_equal(tensor.array(), whole)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_of_every_type(version: int, tmp_path: Path) -> None:
    entries = {"a": "text", "b": True, "c": 7, "d": 0.5, "e": ["x", "yz"], "f": [1, 2],
               "g": [[1], [2, 3]], "h": [False, True]}  # fmt: skip
    data = written(entries, {}, version)
    numbers = {
        0: ("<B", 200), 1: ("<b", -3), 2: ("<H", 60000), 3: ("<h", -300), 5: ("<i", -70000),
        10: ("<Q", 2**63), 11: ("<q", -(2**40)), 12: ("<d", 0.1),
    }  # fmt: skip
    head = b"".join(
        string(f"n{kind}") + struct.pack("<I", kind) + struct.pack(code, number)
        for kind, (code, number) in numbers.items()
    )
    whole = data[:16] + struct.pack("<Q", len(entries) + len(numbers)) + head + data[24:]
    (tmp_path / "m.gguf").write_bytes(whole)
    file = Gguf.open(tmp_path / "m.gguf")
    assert file.version == version and not file.tensors
    found = file.metadata
    assert [found[f"n{kind}"] for kind in numbers] == [number for _, number in numbers.values()]
    assert [found[key] for key in "abcde"] == ["text", True, 7, 0.5, ["x", "yz"]]
    assert found["f"].tolist() == [1, 2] and found["h"].tolist() == [False, True]
    assert [x.tolist() for x in found["g"]] == [[1], [2, 3]]


def test_alignment_is_the_files_own() -> None:
    tensors = {
        name: blocks("Q8_0", (1, 32), np.random.default_rng(i)) for i, name in enumerate("ab")
    }
    entries = {"general.alignment": 128}
    file = Gguf.parse(written(entries, tensors, align=128))
    assert [t.data.tobytes() for t in file.tensors.values()] == [t[2] for t in tensors.values()]
    with pytest.raises(FrontendError, match="does not lie in the file"):
        Gguf.parse(written(entries, tensors, align=64))


def described(
    axes: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0, names: str = "a",
    room: int = 128, count: int | None = None,
) -> bytes:  # fmt: skip
    """A file without metadata whose tensors are described so, in file order."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(names) if count is None else count, 0)
    for name in names:
        head += string(name) + struct.pack(f"<I{len(axes)}Q", len(axes), *axes)
        head += struct.pack("<IQ", kind, offset)
    return head + bytes(-len(head) % 32) + bytes(room)


def entry(body: bytes, count: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, count) + body


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return entry(string("k") + struct.pack("<IIQ", 9, kind, count) + body)


HUGE = 2**62
REFUSED = {
    "no magic": (b"GGML" + bytes(40), "not a GGUF file"),
    "nothing": (b"GG", "ends in the middle"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1, which whet does not read"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "tensors": (described(count=HUGE), "says that it has 4,611.* tensors"),
    "entries": (entry(b"", HUGE), "says that it has .* metadata entries"),
    "key": (entry(struct.pack("<Q", HUGE) + bytes(20)), "ends in the middle"),
    "key not text": (entry(string(b"\xff\xfe") + value(1)), "not UTF-8"),
    "type": (entry(string("key") + struct.pack("<II", 13, 0)), "unknown type 13"),
    "truth": (entry(string("key") + struct.pack("<IB", 7, 2)), "truth value"),
    "numbers": (array(4, HUGE), "says that it has .* numbers"),
    "truths": (array(7, 2**40), "says that it has .* numbers"),
    "strings": (array(8, HUGE), "says that it has .* values"),
    "arrays": (array(9, HUGE), "says that it has .* values"),
    "array type": (array(99, 1, bytes(20)), "unknown type 99"),
    "nested": (array(9, 1, struct.pack("<IQ", 9, 1) * 40), "nested more than 3"),
    "twice": (entry((string("key") + value(1)) * 2, 2), "'key' twice"),
    "alignment": (written({"general.alignment": 24}, {}), "general.alignment is 24"),
    "no alignment": (written({"general.alignment": 0}, {}), "general.alignment is 0"),
    "named twice": (described(names="aa", room=300), "two tensors 'a'"),
    "overlap": (described(names="ab", room=300), "'a' and 'b' overlap"),
    "outside": (described(offset=64), "does not lie in the file"),
    "far outside": (described(offset=2**64 - 32), "does not lie in the file"),
    "unaligned": (described(offset=16, room=300), "does not lie in the file"),
    "large": (described(axes=(2**31, 2**31, 2**31)), "does not lie in the file"),
    "empty axis": (described(axes=(0, 4)), r"shape \(4, 0\)"),
    "no axis": (described(axes=()), "has 0 axes"),
    "five axes": (described(axes=(1,) * 5), "has 5 axes"),
    "half a block": (described(axes=(48,), kind=2), "rows of 48 weights"),
    "format": (described(kind=11), "stored as Q3_K, which whet does not read"),
    "no format": (described(kind=77), "stored as type 77"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_with_a_file_is_said(name: str) -> None:
    data, text = REFUSED[name]
    with pytest.raises(FrontendError, match=text):
        Gguf.parse(data)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FrontendError, match="cannot be read"):
        Gguf.open(tmp_path / "none.gguf")
    with pytest.raises(FrontendError, match="cannot be read"):
        Gguf.open(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(FrontendError, match="is empty"):
        Gguf.open(tmp_path / "empty.gguf")


def changed(drop: str = "", **entries: Any) -> bytes:
    tensors = llama_tensors(np.random.default_rng(0))
    tensors.pop(drop, None)
    sizes = SIZES | {key.replace("__", "."): x for key, x in entries.items()}
    return written({key: x for key, x in sizes.items() if x is not None}, tensors)


WRONG_MODELS = {
    "architecture": (changed(general__architecture="mamba"), "'mamba', which whet does not know"),
    "no architecture": (changed(general__architecture=None), "None, which whet does not know"),
    "no size": (changed(llama__block_count=None), "no number 'llama.block_count'"),
    "size in words": (changed(llama__block_count="one"), "no number 'llama.block_count'"),
    "no blocks": (changed(llama__block_count=0), "'llama.block_count'.* is 0, not a count"),
    "blocks": (changed(llama__block_count=2**31), "2,147,483,648 blocks, but only 11 tensors"),
    "two blocks": (changed(llama__block_count=2), "no tensor 'blk.1.attn_norm.weight'"),
    "width": (changed(llama__embedding_length=64), r"'token_embd.weight' has the shape \(40, 32\)"),
    "huge": (changed(llama__feed_forward_length=2**32 - 1), "ffn_gate.weight' has the shape"),
    "heads": (changed(llama__attention__head_count=3), "share 2"),
    "head": (changed(llama__attention__key_length=7), "not as whet expects"),
    "part is rotated": (changed(llama__rope__dimension_count=4), "and 4 numbers are rotated"),
    "eps": (changed(llama__attention__layer_norm_rms_epsilon=float("nan")), "makes no sense"),
    "base": (changed(llama__rope__freq_base=0.0), "makes no sense"),
    "experts": (changed(llama__expert_count=8), "has experts"),
    "scaled": (changed(llama__rope__scaling__type="yarn"), "positions scaled by 'yarn'"),
    "window": (changed(llama__attention__sliding_window=8), "sliding window"),
    "no embedding": (changed("token_embd.weight"), "no embedding"),
    "a norm is missing": (changed("output_norm.weight"), "no tensor 'output_norm.weight'"),
    "one too many": (
        written(SIZES, llama_tensors(np.random.default_rng(0))
                | {"blk.0.attn_sinks.weight": blocks("F32", (4,), np.random.default_rng(0))}),
        "1 tensors that this architecture does not have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_what_is_wrong_with_a_model_is_said(name: str) -> None:
    data, text = WRONG_MODELS[name]
    with pytest.raises(FrontendError, match=text):
        model_of(Gguf.parse(data))


GOOD = [
    tiny_llama(),
    tiny_llama(1, **{"tokenizer.ggml.tokens": ["a", "b"], "x": [1, 2]}),
    tiny_qwen2(),
]


def attempt(data: bytes) -> bool:
    """Whether a file loads as a model; nothing but our errors may be raised."""
    try:
        model_of(Gguf.parse(data))
    except WhetError:
        return False
    return True


def fuzz(seed: int, count: int) -> int:
    rng = random.Random(seed)
    assert all(map(attempt, GOOD))
    with at_most(256 << 20):
        return sum(attempt(mutated(rng, GOOD)) for _ in range(count))


def test_hostile_files_load_or_are_refused() -> None:
    loaded = fuzz(0, 3000)
    assert 300 < loaded < 2700, "the changes reach both outcomes"


def test_hostile_files_from_a_disk(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(200):
        (tmp_path / "f.gguf").write_bytes(mutated(rng, GOOD))
        try:
            for tensor in Gguf.open(tmp_path / "f.gguf").tensors.values():
                assert tensor.array().dtype == np.float32
        except WhetError as error:
            assert error.what


@pytest.mark.slow
def test_a_hundred_thousand_hostile_files_load_or_are_refused() -> None:
    assert sum(fuzz(seed, 10_000) for seed in range(10, 20)) > 1000
